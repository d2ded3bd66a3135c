"""Every file that the real process writes fails once in every way: it waits, says what is away and why, and goes on by itself."""

from collections.abc import Iterator
from errno import EIO, ENOSPC, errorcode
from typing import NamedTuple

import pytest
from faulty_disk import Call, FaultyDisk
from operated_service import OperatedService, envelope_line

from daemon.status_report import State

pytestmark = pytest.mark.slow


class Struck(NamedTuple):
    """A service that runs on a faulty disk."""

    service: OperatedService
    disk: FaultyDisk


@pytest.fixture(scope="module")
def struck(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Struck]:
    """One service meets all the faults, one after the other; in the end it has told everything once."""
    directory = tmp_path_factory.mktemp("struck")
    disk = FaultyDisk.make(directory / "faults")
    service = OperatedService(directory, environment=disk.environment).start_and_wait()
    yield Struck(service, disk)
    try:
        assert service.stop() == 0
        told = [each["key"] for each in service.notifications()]
        assert len(told) == len(set(told)) == service.input_lines // 2
        assert len(service.dead_letters()) == service.input_lines // 2
        assert not any("possible-duplicate" in each["headers"] for each in (*service.notifications(), *service.dead_letters()))
    finally:
        service.clear_away()


OUTPUTS = [
    ("out/notifications.jsonl", Call.WRITE, ENOSPC),
    ("out/notifications.jsonl", Call.WRITE, EIO),
    ("out/notifications.jsonl", Call.SYNC, EIO),
    ("out/notifications.jsonl", Call.SYNC | Call.TRUNCATE, EIO),
    ("out/dead-letters.jsonl", Call.WRITE, ENOSPC),
    ("out/dead-letters.jsonl", Call.SYNC, EIO),
    ("out/positions.json.tmp", Call.OPEN, ENOSPC),
    ("out/positions.json.tmp", Call.WRITE, ENOSPC),
    ("out/positions.json.tmp", Call.SYNC, EIO),
    ("out/positions.json", Call.RENAME, EIO),
]
LOGS = [("state.db-wal", Call.WRITE, ENOSPC), ("state.db-wal", Call.WRITE, EIO), ("state.db-wal", Call.SYNC, EIO)]


@pytest.mark.parametrize("torn", [0, 300])
@pytest.mark.parametrize(("name", "calls", "error"), OUTPUTS)
def test_an_output_that_fails_is_away_until_it_does_not(struck: Struck, name: str, calls: Call, error: int, torn: int) -> None:
    if torn and Call.WRITE not in calls:
        return
    reason = _strike(struck, name, calls, error, torn, State.OUTPUT_AWAY)
    assert errorcode[error] in reason
    assert name in reason


@pytest.mark.parametrize("torn", [0, 300])
@pytest.mark.parametrize(("name", "calls", "error"), LOGS)
def test_a_storage_that_fails_is_away_until_it_does_not(struck: Struck, name: str, calls: Call, error: int, torn: int) -> None:
    if torn and Call.WRITE not in calls:
        return
    reason = _strike(struck, name, calls, error, torn, State.STORAGE_AWAY)
    assert reason.startswith("run/application/state.db: ")


def test_an_input_that_fails_is_away_until_it_does_not(struck: Struck) -> None:
    reason = _strike(struck, "in/partition-0.jsonl", Call.READ, EIO, 0, State.SOURCE_AWAY)
    assert "EIO" in reason


def _strike(struck: Struck, name: str, calls: Call, error: int, torn: int, state: State) -> str:
    """Let something come while it fails; the reason that the status says meanwhile."""
    service, what = struck.service, state.removesuffix(" away")
    before = service.input_lines // 2
    said = [service.log.count(text) for text in (f"the {what} is away, ", f"the {what} is back")]
    fault = struck.disk.fail(name, calls, error, torn=torn)
    service.append(envelope_line(f"uow-{before}", 1), b"not a record %d" % before)
    report = service.wait_for_report(lambda report: report.state == state and fault.struck > 1, f"the {what} is away")
    assert len(service.notifications()) in (before, before + 1)
    fault.lift()
    service.wait_for_report(
        lambda report: report.state == State.READY and report.counts.get("records") == service.input_lines, f"the {what} is back"
    )
    assert len(service.notifications()) == len(service.dead_letters()) == before + 1
    assert [service.log.count(text) for text in (f"the {what} is away, ", f"the {what} is back")] == [each + 1 for each in said]
    assert report.reason is not None
    return report.reason
