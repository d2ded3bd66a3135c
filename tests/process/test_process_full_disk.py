"""No room on the disk: the service waits, says so, and goes on by itself. A limit on the size of its files stands for the
full disk; it can be lifted from outside."""

from collections.abc import Callable

import pytest
from operated_service import RESEQUENCER, OperatedService, envelope_line

from daemon.status_report import State

pytestmark = pytest.mark.slow

LIMIT = 300_000
"""Bytes that a file may have: with embedded the log of the database is the first to be full, with none the notifications are."""
UNITS = 800


@pytest.mark.parametrize(("storage", "state"), [("none", State.OUTPUT_AWAY), ("embedded", State.STORAGE_AWAY)])
def test_without_room_it_waits_says_what_is_away_and_why_and_goes_on_by_itself(
    new_service: Callable[..., OperatedService], storage: str, state: State
) -> None:
    service = new_service(f"{RESEQUENCER}.storage-type={storage}", "ipf.processing-data.ingress.batch-size=50")
    service.append(*(envelope_line(f"uow-{number}", 1) for number in range(UNITS)))
    service.start(largest_file=LIMIT)
    away = service.wait_for_report(lambda report: report.state not in (State.READY, State.STARTING), "something is away")
    assert away.state is state, away
    assert away.reason is not None
    asked = service.verb("status")
    assert asked.returncode == 1
    assert asked.stdout.startswith(f"{state}: "), asked.stdout
    assert 0 < len(service.notifications()) < UNITS
    service.allow_files_of(1 << 40)
    service.wait_for_report(lambda report: report.state == State.READY and report.counts["handled"] == UNITS, "it went on")
    keys = [each["key"] for each in service.notifications()]
    assert len(keys) == len(set(keys)) == UNITS
    assert service.stop() == 0
    what = state.removesuffix(" away")
    assert [service.log.count(text) for text in (f": the {what} is away, ", f": the {what} is back")] == [1, 1]


def test_a_stop_without_room_loses_nothing(service: OperatedService) -> None:
    service.append(*(envelope_line(f"uow-{number}", 1) for number in range(UNITS)))
    service.start(largest_file=LIMIT)
    service.wait_for_report(lambda report: report.state == State.STORAGE_AWAY, "the storage is away")
    assert service.stop() == 0
    assert service.verb("status").stdout.startswith("not running: it ended with: ")
    service.start()
    service.wait_for_report(lambda _: len(service.notifications()) >= UNITS, "the rest has left")
    assert service.stop() == 0
    keys = [each["key"] for each in service.notifications()]
    assert len(keys) == len(set(keys)) == UNITS
