"""What `status` says of schedules and receivers: each once, as the worker reports it that knows most of it."""

import os
from pathlib import Path

from notification_service.delivery.core.backlog import make_backlog
from notification_service.delivery.core.jobs import Pause
from notification_service.status.delivery import (
    DeliveredPartition,
    DeliveryReport,
    DirectStatus,
    GateStatus,
    ScheduleStatus,
    delivery_file,
    delivery_lines,
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
        f"receiver falling: open, 600 waiting, the oldest since {TICK}, -2.0 per second, done in: 5 min 0 s",
        f"receiver growing: open, 600 waiting, the oldest since {TICK}, +0.5 per second, done in: unknown",
        "receiver empty: open, 0 waiting",
    ]


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
        "receiver tracker: open, 3 waiting",
        f"receiver tracker: paused since {TICK} by ann: repair",
        "receiver bank: open; 0 behind, 0 read",
        f"receiver bank: paused since {TICK} by ann: repair",
    ]
