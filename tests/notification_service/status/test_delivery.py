"""What `status` says of schedules and receivers: each once, as the worker reports it that knows most of it."""

import os
from pathlib import Path

import msgspec

from guardian.metrics import HistogramReport
from notification_service.delivery.core.backlog import make_backlog
from notification_service.delivery.core.jobs import Pause
from notification_service.status.delivery import (
    DeliveredPartition,
    DeliveryReport,
    DeliveryStatus,
    DirectStatus,
    GateStatus,
    ReceiverCalls,
    ScheduleStatus,
    delivery_file,
    delivery_lines,
    delivery_notes,
    find_delivery,
)
from resequencer.clock import instant_of

AT = "2026-03-28T18:00:05.000Z"
TICK, NEXT = "2026-03-28T18:00:00.000Z", "2026-03-29T18:00:00.000Z"


def test_of_two_workers_the_one_counts_that_has_seen_more_of_a_schedule(tmp_path: Path) -> None:
    reports = (
        ScheduleStatus("end-of-day", "0 18 * * * (UTC)", next_tick=NEXT),
        ScheduleStatus("end-of-day", "0 18 * * * (UTC)", TICK, 500, 1_500, NEXT, TICK),
    )
    for slot, each in enumerate(reports):
        delivery_file(tmp_path, slot).write(DeliveryReport(os.getpid(), 7, AT, schedules=(each,)))
    found = find_delivery(tmp_path, os.getpid(), 2, instant_of(AT))
    assert found.schedules == (reports[1],)
    assert delivery_lines(found)[-1].endswith(f"tick {TICK} has made 500 requests; tick {TICK} is due and not done")


def test_a_schedule_that_waits_says_why(tmp_path: Path) -> None:
    waiting = ScheduleStatus("monthly", "0 0 1 * * (UTC)", next_tick=NEXT, overdue_since=TICK, problem="no release of lookups")
    delivery_file(tmp_path, 0).write(DeliveryReport(os.getpid(), 7, AT, schedules=(waiting,)))
    (line,) = delivery_lines(find_delivery(tmp_path, os.getpid(), 1, instant_of(AT)))[1:]
    assert line.endswith(f"tick {TICK} is due and not done; no release of lookups")


def test_the_calls_of_each_worker_are_kept_apart_because_their_counts_begin_with_it(tmp_path: Path) -> None:
    calls = ReceiverCalls("tracker", {"2xx": 3}, HistogramReport((1.0,), (2, 3), 4.5))
    for slot in (0, 2):
        delivery_file(tmp_path, slot).write(DeliveryReport(os.getpid(), 7, AT, receiver_calls=(calls,)))
    found = find_delivery(tmp_path, os.getpid(), 3, instant_of(AT)).receiver_calls
    assert found == (calls, msgspec.structs.replace(calls, slot=2))


def test_a_receiver_whose_job_lacks_a_part_of_its_source_says_so(tmp_path: Path) -> None:
    delivery_file(tmp_path, 0).write(DeliveryReport(os.getpid(), 7, AT, gates=(GateStatus("tracker", True, 3, missing_jobs=1),)))
    (line,) = delivery_lines(find_delivery(tmp_path, os.getpid(), 1, instant_of(AT)))[1:]
    jobs = "1 job without a part of the source, which was removed before it was read (`resequencer delivery jobs`)"
    assert line == f"receiver tracker: open, 3 waiting, {jobs}"


def test_a_backlog_says_since_when_the_oldest_waits_and_when_all_is_delivered(tmp_path: Path) -> None:
    gates = (
        GateStatus("falling", True, 600, backlog=make_backlog(600, TICK, -2.0)),
        GateStatus("growing", True, 600, backlog=make_backlog(600, TICK, 0.5)),
        GateStatus("empty", True, 0, backlog=make_backlog(0, None, 0.0)),
    )
    delivery_file(tmp_path, 0).write(DeliveryReport(os.getpid(), 7, AT, gates=gates))
    assert delivery_lines(find_delivery(tmp_path, os.getpid(), 1, instant_of(AT)))[1:] == [
        f"receiver falling: open, 600 waiting, the oldest since {TICK}, -2.0 per second, done in 5 min 0 s",
        f"receiver growing: open, 600 waiting, the oldest since {TICK}, +0.5 per second",
        "receiver empty: open, 0 waiting",
    ]


def noted(
    *, shut_since: str | None = None, count: int = 600, oldest_at: str | None = None, rate: float | None = None
) -> list[str]:
    """Return the notes of a receiver of the ledger, and of one of topics with the same backlog."""
    backlog = make_backlog(count, oldest_at, rate)
    gate = GateStatus("bank", shut_since is None, count, "HTTP 503: Anna Muster", shut_since, AT, backlog=backlog)
    direct = DirectStatus(
        "mail", "HTTP 503", shut_since, AT, partitions=(DeliveredPartition("T-0", 0, count, 0, backlog=backlog),)
    )
    return delivery_notes(DeliveryStatus(gates=(gate,), direct=(direct,)), instant_of(AT))


def test_a_receiver_that_gets_nothing_for_long_or_falls_behind_is_noted_without_what_it_answered() -> None:
    minutes_ago, hours_ago = "2026-03-28T17:50:00.000Z", "2026-03-28T15:59:00.000Z"
    assert noted(shut_since=minutes_ago) == [
        f"receiver bank gets nothing since {minutes_ago}; undelivered: 600 rows",
        f"receiver mail gets nothing since {minutes_ago}; undelivered: 600 offsets",
    ]
    assert noted(oldest_at=minutes_ago, rate=0.5)[0].startswith(
        "receiver bank falls behind; undelivered: 600 rows, the oldest since"
    )
    assert len(noted(oldest_at=hours_ago, rate=-2.0)) == 2
    assert noted(shut_since=TICK) == noted(oldest_at=TICK, rate=0.5) == noted(oldest_at=minutes_ago, rate=-2.0) == []
    assert noted(shut_since=hours_ago, count=0) == []


def test_a_receiver_that_a_person_paused_is_noted_with_who_it_was_and_not_as_one_that_is_late() -> None:
    gate = GateStatus("bank", False, 0, "HTTP 503", "2026-03-28T15:59:00.000Z", pause=Pause(TICK, "anna", "their release"))
    note = f"receiver bank is paused since {TICK} by anna; undelivered: 0 rows"
    assert delivery_notes(DeliveryStatus(gates=(gate,)), instant_of(AT)) == [note]


def test_the_backlog_of_a_receiver_of_topics_is_that_of_the_partitions_of_all_workers(tmp_path: Path) -> None:
    for slot, backlog in enumerate((make_backlog(5, TICK, -1.0), make_backlog(7, AT, -2.0))):
        partition = DeliveredPartition(f"T-{slot}", 0, backlog.count, 0, backlog=backlog)
        direct = (DirectStatus("bank", partitions=(partition,)),)
        delivery_file(tmp_path, slot).write(DeliveryReport(os.getpid(), 7, AT, direct=direct))
    (found,) = find_delivery(tmp_path, os.getpid(), 2, instant_of(AT)).direct
    assert found.backlog == make_backlog(12, TICK, -3.0)


def test_a_paused_receiver_says_since_when_by_whom_and_why(tmp_path: Path) -> None:
    pause = Pause(TICK, "ann", "repair")
    reports = (DirectStatus("bank"), DirectStatus("bank", pause=pause))
    for slot, each in enumerate(reports):
        gates = (GateStatus("tracker", True, 3, pause=pause),)
        delivery_file(tmp_path, slot).write(DeliveryReport(os.getpid(), 7, AT, gates=gates, direct=(each,)))
    assert delivery_lines(find_delivery(tmp_path, os.getpid(), 2, instant_of(AT)))[2:] == [
        "receiver tracker: paused, its gate is open, 3 waiting",
        f"receiver tracker: paused since {TICK} by ann: repair",
        "receiver bank: open; 0 behind, 0 read",
        f"receiver bank: paused since {TICK} by ann: repair",
    ]
