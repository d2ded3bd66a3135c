"""A delivery worker: what one source or one defect may do to the rest."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from time import monotonic

import pytest
from harness.ledger_stage import open_database
from harness.receivers import delivery_settings
from harness.scripted_receiver import Reply, ScriptedReceiver, scripted_receiver
from harness.waiting import DEADLINE_SECONDS

from notification_service.delivery.core.jobs import Item
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.intake import Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.settings import Receiver
from notification_service.delivery.source_reader import SourceReader, Sources
from notification_service.delivery.worker import DeliveryWorker

SETTINGS = delivery_settings("live = false").worker


@pytest.fixture
def receiving() -> Iterator[ScriptedReceiver]:
    with scripted_receiver() as receiver:
        yield receiver


@pytest.fixture
def ledger(tmp_path: Path, receiving: ScriptedReceiver) -> Iterator[Ledger]:
    """A ledger with the receivers good and bad, and a job for each."""
    settings = delivery_settings("live = false", url=receiving.url).receivers[0][1]
    made = Ledger(open_database(f"sqlite:///{tmp_path}/ledger.db"), [("good", settings), ("bad", settings)], 1_000_000, 60_000)
    for name in ("good", "bad"):
        made.start_job(f"of-{name}", name, name, "ann")
    yield made
    made.close()


class Feed:
    """The source `good` has three notifications; `bad` does as it is told."""

    def __init__(self, source: str, fails_with: BaseException | None) -> None:
        self._source, self._fails_with = source, fails_with

    def read(self, positions: Mapping[str, int], most: int) -> Portion:
        del positions, most
        if self._source == "bad":
            if self._fails_with is not None:
                raise self._fails_with
            return Portion([], {}, is_end=True)
        items = [Item(f"n{number}", f"u{number}", b"{}", (), f"p@{number}", f"n{number}") for number in range(3)]
        return Portion(items, {"p": 3}, is_end=True, seals=True)

    def close(self) -> None:
        """There is nothing to close."""


class Unreadable:
    """A source of another machine."""

    def read(self, positions: Mapping[str, int], most: int) -> Portion:
        raise JobRefused("n.jsonl is missing")

    def close(self) -> None:
        """There is nothing to close."""


def test_a_reader_that_cannot_read_a_source_leaves_it_to_one_that_can(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("notification_service.delivery.source_reader.monotonic", lambda: clock[0])
    blind = SourceReader(ledger, "good", "w1", Sources("live", lambda *_: Unreadable()), lambda: 0)
    sighted = SourceReader(ledger, "good", "w2", Sources("live", lambda source, _: Feed(source, None)), lambda: 0)
    assert not blind.read()
    assert blind.problem == "job of-good takes nothing in: n.jsonl is missing"
    assert not sighted.read()
    found = ledger.find_job("of-good")
    assert found is not None
    assert found.ingested == 3
    clock[0] += 60
    blind.read()
    assert blind.problem is None, "the source was read to its end"
    assert (blind._feeds, sighted.read(), sighted._feeds) == ({}, False, {}), "readers of ended sources are closed"


def test_each_service_reads_what_it_lets_out_itself_where_several_share_a_ledger(
    ledger: Ledger, receiving: ScriptedReceiver
) -> None:
    live = delivery_settings(url=receiving.url).receivers[0][1]
    shared = Ledger(ledger.database, [("r", live)], 1_000_000, 60_000)
    opened: dict[str, list[str]] = {"one": [], "two": []}
    for name, found in opened.items():
        sources = Sources(f"live:{name}:/out", lambda source, _, found=found: found.append(source) or Feed(source, None))  # type: ignore[misc]
        SourceReader(shared, "r", name, sources, lambda: 0).read()
    assert opened == {"one": ["live:one:/out"], "two": ["live:two:/out"]}
    names = {each.source: each.id for each in shared.jobs() if each.is_live}
    assert names["live:one:/out"] == "live-r"
    assert names["live:two:/out"].startswith("live-r-")


def run(ledger: Ledger, receiving: ScriptedReceiver, fails_with: BaseException | None = None) -> None:
    """Run a worker until the three were taken, or until that hangs."""

    def open_feed(source: str, receiver: Receiver) -> Feed:
        del receiver
        return Feed(source, fails_with)

    until = monotonic() + DEADLINE_SECONDS
    worker = DeliveryWorker(ledger, SETTINGS, "w", Sources("live", open_feed), lambda: 0)
    worker.run(lambda: len(receiving.taken) == 3 or monotonic() > until)


def test_a_source_that_may_not_be_read_is_told_and_holds_up_no_other_receiver(
    ledger: Ledger, receiving: ScriptedReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    run(ledger, receiving, PermissionError(13, "Permission denied", "n.jsonl"))
    assert len(receiving.taken) == 3
    assert "job of-bad takes nothing in: [Errno 13] Permission denied: 'n.jsonl'" in caplog.text


def test_what_is_under_way_ends_before_a_defect_ends_the_worker(
    ledger: Ledger, receiving: ScriptedReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def answers(_key: str, id_: str, _nth: int) -> Reply:
        called.append(id_)
        return Reply(201, after_seconds=1)

    receiving.answers = answers

    def delete_expired() -> int:
        if len(called) < 3:
            return 0
        raise RuntimeError("a defect")

    monkeypatch.setattr("notification_service.delivery.worker._RETENTION_TURNS", 1)
    monkeypatch.setattr("notification_service.delivery.worker._UPKEEP_SECONDS", 0.1)
    monkeypatch.setattr(ledger, "delete_expired", delete_expired)
    with pytest.raises(RuntimeError, match="a defect"):
        run(ledger, receiving)
    job = ledger.find_job("of-good")
    assert job is not None
    assert (len(receiving.taken), job.processed) == (3, 3)
