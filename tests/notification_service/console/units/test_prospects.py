"""What the page, the API and the command promise to a unit that waits."""

from __future__ import annotations

import msgspec
import pytest

from notification_service.console.find_unit import find_hindrance, find_service_hindrance, find_unread, prospect_of
from notification_service.console.unit_story import DeadLetters, Left, UnitStory, Wait
from notification_service.status.report import Identity, PartitionStatus, State, UntakenPartition, report
from notification_service.status.service_report import ServiceReport, service_report

NOW, STALE_AT = 1_000_000, 1_020_000
HELD = PartitionStatus("T-0", 10, 10, 0, None, lag=7)
UNTAKEN = UntakenPartition("T-1", "storage", "redis does not answer", "1970-01-01T00:17:00Z", 0)


def service(state: State = State.READY, at: int = NOW, *, is_running: bool = True) -> ServiceReport:
    reported = report(Identity(1, "c", 0), state, None, NOW)
    return service_report([msgspec.structs.replace(reported, partitions=(HELD,), untaken=(UNTAKEN,))], at, is_running=is_running)


NO_REPORT = ServiceReport(State.STARTING, report(Identity(1, "c", 0), State.STARTING, None, NOW), ())


def story(
    until: str, kind: str = "deadline", hindrance: str | None = None, unread: int | None = None, waits_for: str = "sequence:2"
) -> UnitStory:
    wait = Wait(waits_for, kind, "2026-03-28T23:32:00Z", until, 1, 10)
    nothing = (DeadLetters((), is_complete=True, searched=""), Left((), is_complete=True, searched=""))
    return UnitStory("u", "2026-03-28T23:33:00Z", "T-0", (), *nothing, wait, hindrance=hindrance, unread=unread)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (story("2026-03-28T23:35:10Z"), "At 2026-03-28T23:35:10Z (in 2 min 10 s) it is released, even if nothing came."),
        (
            story("2026-03-28T23:35:10Z", waits_for="window"),
            "At 2026-03-28T23:35:10Z (in 2 min 10 s) its window ends, and what waits is sent in order.",
        ),
        (
            story("2026-03-28T23:32:35Z", hindrance="The service does not run here: it waits until it is started"),
            "The service does not run here: it waits until it is started; its deadline was 2026-03-28T23:32:35Z (25 s ago).",
        ),
        (
            story("2026-03-28T23:33:35Z", "retry", "Worker 1 is away"),
            "Worker 1 is away; its next attempt is due at 2026-03-28T23:33:35Z (in 35 s).",
        ),
        (
            story("2026-03-28T23:32:35Z", unread=7),
            "It is overdue by 25 s: its partition has unread records, which are read first; its deadline was 2026-03-28T23:32:35Z"
            " (25 s ago).",
        ),
        (story("2026-03-28T23:32:57.900Z", "call"), "Its handler has been called for 2.1 s."),
        (
            msgspec.structs.replace(story("2026-03-28T23:32:57.900Z", "call"), calls_waiting=2),
            "Its handler has been called for 2.1 s, or is not called yet: 2 calls wait to begin.",
        ),
        (story("2026-03-28T23:31:00Z", "call", unread=7), "Its handler has been called for 2 min 0 s."),
        (story("2026-03-28T23:33:01Z", "call"), "Its handler has been called for 0.0 s."),
        (
            story("2026-03-28T23:32:35Z", "call", "The service does not run here: it waits until it is started"),
            "The service does not run here: it waits until it is started; the call of its handler was due at"
            " 2026-03-28T23:32:35Z (25 s ago).",
        ),
        (story("2026-03-28T23:32:35Z", unread=0), "Its deadline was 2026-03-28T23:32:35Z (25 s ago); its turn comes next."),
    ],
)
def test_only_what_can_happen_is_promised(given: UnitStory, expected: str) -> None:
    assert prospect_of(given) == expected


@pytest.mark.parametrize(
    ("reported", "partition", "expected"),
    [
        (None, "T-0", "does not run here"),
        (service(is_running=False), "T-0", "does not run here"),
        (service(at=STALE_AT), "T-0", "Worker 0, which has its partition, is in the state “stale”"),
        (service(State.STARTING), "T-2", "The service is starting"),
        (NO_REPORT, "T-0", "The service is starting"),
        (service(State.STORAGE_UNAVAILABLE), "T-0", "“storage unavailable”"),
        (service(), "T-1", "has not taken its partition over yet (storage unavailable)"),
        (service(), "T-2", "No worker of this machine"),
        (service(), "T-0", None),
    ],
)
def test_what_stands_against_it_is_named(reported: ServiceReport | None, partition: str, expected: str | None) -> None:
    found = find_hindrance(reported, partition)
    assert found is None if expected is None else expected in str(found)


def test_the_service_as_a_whole_is_hindered_if_it_does_not_run_or_a_worker_is_stale() -> None:
    assert find_service_hindrance(service()) is None
    assert "does not run" in str(find_service_hindrance(None))
    assert "is starting" in str(find_service_hindrance(NO_REPORT))
    assert "stale (worker 0)" in str(find_service_hindrance(service(at=STALE_AT)))


def test_unread_records_are_known_while_the_service_runs() -> None:
    assert find_unread(service(), "T-0") == 7
    assert find_unread(service(), "T-9") is None
    assert find_unread(service(is_running=False), "T-0") is None
