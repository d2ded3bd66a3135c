"""A worker switches to a new release between two cycles, whenever the release comes."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from harness.processes.operated_service import EVENTS, FLOW, NOTIFICATION, envelope_line
from harness.published_lookups import NOW, publish, shaped

from notification_service.configuration.configuration import Configuration
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import Pointer
from notification_service.lookups.release import Release
from notification_service.lookups.shapes import ANY, SETTINGS
from notification_service.wiring.composition import Parts, compose

SWITCHES = 100


@pytest.fixture
def directory(tmp_path: Path) -> LookupsDirectory:
    return LookupsDirectory(tmp_path / "lookups")


@pytest.fixture
def pointers(directory: LookupsDirectory) -> list[Pointer]:
    """Two releases with different texts for every event."""
    found = []
    for number, text in enumerate(("one", "two")):
        rows = {(ANY, FLOW, event): ["ACCP", None, text, None] for event in EVENTS}
        publish(directory, {SETTINGS: shaped(rows)}, now=NOW + number)
        found.append(directory.get_current())
    return found


@pytest.fixture
def parts(
    loaded: Callable[..., Configuration], tmp_path: Path, directory: LookupsDirectory, pointers: list[Pointer]
) -> Iterator[Parts]:
    assert directory.get_current() in pointers
    on_files = f"ipf.processing-data.ingress.transport = file\n{NOTIFICATION}.transport = file\n"
    text = (
        f'{on_files}{NOTIFICATION} {{ run-directory = "{tmp_path}/run", lookups.directory = "{directory.path}"\n'
        "resequencer { storage-type = none, strategy = SEQUENCE } }"
    )
    parts = compose(loaded(text), lambda *_: None, lambda: False)
    yield parts
    for server in parts.servers:
        server.close()
    parts.handler.close()


def notified(tmp_path: Path) -> list[tuple[str, str]]:
    """Return the text of each notification, and the version in its header."""
    marks = []
    for line in (tmp_path / "run" / "out" / "notifications.jsonl").read_text().splitlines():
        notification = json.loads(line)
        status = notification["value"]["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]
        marks.append((status["StsRsnInf"][0]["AddtlInf"][0], notification["headers"]["lookups-version"]))
    return marks


@pytest.mark.slow
def test_a_hundred_releases_that_come_in_the_middle_of_a_cycle_mix_nothing(
    parts: Parts, directory: LookupsDirectory, pointers: list[Pointer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look-up of each cycle makes another release current; later envelopes of the cycle still get the old text."""
    texts = {pointer.version: text for pointer, text in zip(pointers, ("one", "two"), strict=True)}
    find, switched = Release.find, [False]

    def switching(release: Release, table: str, key: bytes) -> bytes | None:
        if not switched[0]:
            switched[0] = True
            directory.switch(next(each for each in pointers if each.version != release.version))
            parts.handler._follower.look()
        return find(release, table, key)

    monkeypatch.setattr(Release, "find", switching)
    source = tmp_path / "run" / "in" / "partition-0.jsonl"
    source.parent.mkdir(parents=True)
    versions = []
    for number in range(SWITCHES):
        versions.append(parts.handler.version)
        with source.open("ab") as file:
            file.writelines(envelope_line(f"uow-{number}", sequence) + b"\n" for sequence in (1, 2, 3))
        switched[0], read = False, parts.cycle.metrics.counts["records"]
        while parts.cycle.metrics.counts["records"] < read + 3:
            parts.cycle.run_once()
        parts.handler.take_up()
    assert all(before != after for before, after in pairwise(versions))
    parts.cycle.run_once()
    assert notified(tmp_path) == [(texts[version], version) for version in versions for _ in range(3)]
