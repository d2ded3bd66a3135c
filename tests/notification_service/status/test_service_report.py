"""The combination of several workers' reports."""

import json
import os
from pathlib import Path

import msgspec
import pytest

from guardian.metrics import CycleTimes, HistogramReport
from notification_service.command_line import main
from notification_service.status.aggregation import AggregationStatus, BridgeStatus
from notification_service.status.delivery import DeliveryStatus
from notification_service.status.file import StatusFile
from notification_service.status.report import (
    STALE_AFTER_MS,
    CallsStatus,
    Identity,
    PartitionStatus,
    ServerStatus,
    State,
    StatusReport,
    Units,
    UnitWait,
    UntakenPartition,
    report,
)
from notification_service.status.service_report import ServedStatus, find_reports, service_report, sum_of_lags
from notification_service.status.text import on_one_screen, status_lines
from notification_service.supervision.locks import RunLock
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import instant_text

NOW = 1_774_740_835_941


def report_of(slot: int, state: State = State.READY, reason: str | None = None, *, count: int = 2, at: int = NOW) -> StatusReport:
    return report(Identity(os.getpid(), "local.conf", at, slot=slot, worker_count=count), state, reason, at)


def partition(number: int, slot: int, unpublished: int = 0) -> PartitionStatus:
    return PartitionStatus(f"T-{number}", 10, 8, unpublished, None, slot, 5)


def wait(unit: str, second: int) -> UnitWait:
    return UnitWait(unit, "T-0", "sequence:1", "deadline", f"2026-03-28T23:33:{second:02}.000Z", "2026-03-28T23:34:16.000Z", 1)


def together(*reports: StatusReport, now: int = NOW, is_running: bool = True):
    return service_report(reports, now, is_running=is_running)


def test_a_service_is_ready_when_all_of_its_workers_are():
    assert together(report_of(0), report_of(1)).state == State.READY


@pytest.mark.parametrize("state", [each for each in State if each is not State.READY])
def test_one_worker_that_is_not_ready_makes_the_service_what_it_is_and_says_why(state):
    service = together(report_of(0), report_of(1, state, "the reason"))
    assert (service.state, service.whole.reason) == (state, "worker 1: the reason")


def test_calls_of_all_workers_are_added_up_with_the_longest_of_all():
    calls = CallsStatus(2, 1, 1, "a", 900, ("c",)), CallsStatus(3, 0, 2, "b", 2_100, ("d", "e")), None
    whole = together(*[msgspec.structs.replace(report_of(slot, count=3), calls=each) for slot, each in enumerate(calls)]).whole
    assert whole.calls == CallsStatus(5, 1, 3, "b", 2_100, ("c", "d", "e"))
    assert together(report_of(0), report_of(1)).whole.calls is None


def test_of_a_worker_that_hangs_it_is_not_said_how_far_it_is_behind():
    hangs = msgspec.structs.replace(report_of(0, at=NOW - STALE_AFTER_MS - 1), partitions=(partition(0, 0),))
    goes_on = msgspec.structs.replace(report_of(1), partitions=(partition(1, 1),))
    service = together(hangs, goes_on)
    assert [each.lag for each in service.whole.partitions] == [None, 5]
    lines = list(status_lines(service, ""))
    assert "T-0: worker 0, read to 10, lag unknown, acknowledged 8, 0 to publish" in lines


def test_what_is_away_counts_more_than_what_begins_or_ends():
    service = together(
        report_of(0, State.STARTING, "early", count=3),
        report_of(1, State.OUTPUT_UNAVAILABLE, "full", count=3),
        report_of(2, State.DRAINING, count=3),
    )
    assert (service.state, service.whole.reason) == (State.OUTPUT_UNAVAILABLE, "worker 1: full")


def test_one_worker_that_says_nothing_any_more_makes_the_service_stale():
    service = together(report_of(0, at=NOW + STALE_AFTER_MS + 1), report_of(1), now=NOW + STALE_AFTER_MS + 1)
    assert service.state == "stale"
    assert [state for state, _ in service.workers] == ["ready", "stale"]
    assert service.whole.reported_at == instant_text(NOW)


def test_a_reason_that_names_its_worker_names_it_once():
    service = together(report_of(0), report_of(1, State.STARTING, "worker 1 was killed by SIGKILL"))
    assert service.whole.reason == "worker 1 was killed by SIGKILL"


def test_of_a_service_that_ended_the_first_reason_counts():
    late, first = report_of(0, State.STOPPED, "the disk is full", at=NOW + 1), report_of(1, State.STOPPED, "no room")
    service = together(late, first, is_running=False)
    assert (service.state, service.whole.reason) == ("not running", "worker 1: no room")


def test_units_counts_and_partitions_of_all_are_added_up_and_the_oldest_waits_lead():
    one = msgspec.structs.replace(
        report_of(0),
        units=Units(1, 2, 3, 4, 5, 6),
        partitions=(partition(10, 0), partition(2, 0)),
        counts={"records": 7, "heals": 0},
        notifications={"RCVD": 1},
        dead_letters={"too-large": 1},
        oldest_waits=(wait("a", 1), wait("c", 3)),
        longest_wait_ms=9,
        restarts=1,
        last_exit="was killed by SIGKILL at 2026-03-28T23:33:55.941Z",
        notes=("the topic has grown",),
        unavailable={"sanctions-api": 2, "rates": 1},
    )
    other = msgspec.structs.replace(
        report_of(1),
        units=Units(10, 20, 30, 40, 50, 60),
        partitions=(partition(9, 1),),
        counts={"records": 3, "handled": 2},
        notifications={"RCVD": 1, "ACTC": 4},
        oldest_waits=(wait("b", 2),),
        unavailable={"sanctions-api": 3},
        notes=("the topic has grown",),
    )
    whole = together(one, other).whole
    assert whole.units == Units(11, 22, 33, 44, 55, 66)
    assert [(each.partition, each.slot) for each in whole.partitions] == [("T-2", 0), ("T-9", 1), ("T-10", 0)]
    assert whole.counts == {"records": 10, "heals": 0, "handled": 2}
    assert (whole.notifications, whole.dead_letters) == ({"RCVD": 2, "ACTC": 4}, {"too-large": 1})
    assert [each.unit for each in whole.oldest_waits] == ["a", "b", "c"]
    assert (whole.longest_wait_ms, whole.restarts) == (9, 1)
    assert whole.last_exit == "worker 0 was killed by SIGKILL at 2026-03-28T23:33:55.941Z"
    assert whole.notes == ("the topic has grown",)
    assert whole.unavailable == {"sanctions-api": 5, "rates": 1}


def test_of_several_workers_that_ended_the_one_that_ended_last_is_named():
    ends = ("was killed by SIGKILL at 2026-03-28T23:33:55.941Z", "ended with 0 at 2026-03-28T23:34:01.000Z")
    reports = [msgspec.structs.replace(report_of(slot), last_exit=text) for slot, text in enumerate(ends)]
    assert together(*reports).whole.last_exit == f"worker 1 {ends[1]}"


def test_a_ready_service_says_that_more_than_half_became_dead_letters():
    one = msgspec.structs.replace(report_of(0), dead_letters={"undecodable": 8, "no-sequence": 1}, counts={"handled": 1})
    other = msgspec.structs.replace(report_of(1), dead_letters={"no-sequence": 2}, counts={"handled": 9})
    assert list(status_lines(together(one, other), ""))[-1] == (
        "note: more than half of the records became dead letters since the start: 11 of 21, 8 of them undecodable. "
        "`resequencer dead-letters list` shows the errors"
    )


@pytest.mark.parametrize(("dead", "handled"), [(9, 0), (10, 10), (1_000, 10_000)])
def test_a_few_dead_letters_and_no_more_than_half_are_not_noted(dead, handled):
    one = msgspec.structs.replace(report_of(0, count=1), dead_letters={"undecodable": dead}, counts={"handled": handled})
    assert together(one).whole.notes == ()


def test_the_lag_of_all_partitions_is_known_only_if_that_of_each_is():
    assert [sum_of_lags(each) for each in ((), (None,), (3, None), (3, 0, 4))] == [None, None, None, 7]


def test_it_says_since_when_it_counts_and_how_many_of_the_waits_it_shows():
    """The counts of a worker begin at 0 with each start."""
    shown = msgspec.structs.replace(report_of(0), units=Units(waiting=194), oldest_waits=(wait("a", 1), wait("b", 2)))
    lines = list(status_lines(together(shown, report_of(1)), ""))
    assert f"counts since {instant_text(NOW)}" in lines
    assert lines[lines.index("the 2 longest of 194 waits:") + 1].startswith("waits since 2026-03-28T23:33:01.000Z: a ")
    restarted = list(status_lines(together(report_of(0), report_of(1, at=NOW + 1_000)), ""))
    assert f"counts since the starts of the workers, from {instant_text(NOW)} to {instant_text(NOW + 1_000)}" in restarted
    assert not any("longest of" in each for each in restarted)


def test_a_partition_that_moved_is_shown_with_the_worker_that_spoke_last():
    paused = msgspec.structs.replace(report_of(0), partitions=(partition(0, 0),))
    taker = msgspec.structs.replace(report_of(1, at=NOW + 1), partitions=(partition(0, 1),))
    for reports in ((paused, taker), (taker, paused)):
        assert [each.slot for each in together(*reports).whole.partitions] == [1]


def test_the_report_of_one_worker_is_the_services(tmp_path):
    alone = report_of(0, count=1)
    assert together(alone).whole is alone


def test_each_worker_has_a_report_of_its_own_and_what_an_earlier_service_left_is_not_ours(tmp_path):
    StatusFile(tmp_path).write(report_of(0, count=3))
    StatusFile(tmp_path, 1).write(report_of(1, count=3))
    StatusFile(tmp_path, 2).write(msgspec.structs.replace(report_of(2, count=3), process_id=1))
    StatusFile(tmp_path, 3).write(report_of(3, count=3))
    found = find_reports(tmp_path)
    assert [(each.slot, each.state) for each in found] == [(0, State.READY), (1, State.READY), (2, State.STARTING)]


@pytest.fixture
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The run directory of the default configuration, in an empty working directory, held by this process."""
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "run" / "application"
    lock = RunLock(directory)
    lock.acquire()
    yield directory
    lock.release()


def test_no_part_of_what_status_says_in_json_takes_the_place_of_another():
    parts = (StatusReport, ServedStatus, DeliveryStatus, AggregationStatus, BridgeStatus)
    names = [each.name for part in parts for each in msgspec.structs.fields(part)]
    assert len(names) == len(set(names))


def test_status_shows_a_line_for_each_worker_and_who_holds_what(run_directory, capsys):
    now = SystemClock().now()
    busy = msgspec.structs.replace(
        report_of(0, at=now), partitions=(partition(0, 0, unpublished=3),), last_cycle=CycleTimes(500, 3, 20, 4, 6)
    )
    late = UntakenPartition("T-1", "storage", "no answer", "2026-03-28T23:34:16.000Z", 1)
    waits = msgspec.structs.replace(report_of(1, State.STORAGE_UNAVAILABLE, "no answer", at=now, count=3), untaken=(late,))
    idle = msgspec.structs.replace(report_of(2, at=now, count=3), worker_process_id=4711)
    for each in (msgspec.structs.replace(busy, worker_count=3), waits, idle):
        StatusFile(run_directory, each.slot).write(each)
    assert main(["status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "storage unavailable: worker 1: no answer"
    assert lines[2:5] == [
        "worker 0: ready, 1 partition",
        "worker 1: storage unavailable: no answer",
        "worker 2 (process 4711): ready, no partition is left for it; it is on standby",
    ]
    assert "pending: 3 committed, not sent yet" in lines
    assert "T-0: worker 0, read to 10, 5 behind, acknowledged 8, 3 to publish" in lines
    assert "T-1: worker 1, not taken over yet: storage unavailable: no answer; next try at 2026-03-28T23:34:16.000Z" in lines
    assert "last cycle of worker 0 with work: 500 records, poll 3, decide 20, commit 4, publish 6 ms" in lines


def test_the_short_status_has_sums_and_names_what_is_not_ready(run_directory, capsys):
    now = SystemClock().now()
    busy = msgspec.structs.replace(
        report_of(0, at=now),
        partitions=(partition(0, 0, unpublished=3), partition(2, 0)),
        oldest_waits=(wait("u", 1), wait("v", 2)),
        units=Units(waiting=2, stashed_envelopes=5),
    )
    StatusFile(run_directory).write(busy)
    StatusFile(run_directory, 1).write(report_of(1, State.STORAGE_UNAVAILABLE, "no answer", at=now))
    assert main(["status", "--short"]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "worker 0: ready",
        "2 partitions: 10 behind, 3 to publish",
        "2 waiting units with 5 stashed envelopes",
        "the longest wait: u since 2026-03-28T23:33:01.000Z",
        "  for sequence:1, deadline at 2026-03-28T23:34:16.000Z",
        "records 0, notifications 0, dead letters 0 since the starts",
    ]
    assert main(["status", "--short", "--verbose"]) == 1
    assert "T-2: worker 0, read to 10, 5 behind, acknowledged 8, 0 to publish" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (["a"] * 22, "a"),
        (["a"] * 23, "(2 lines more and whole lines: --verbose)"),
        (["a", "b" * 81], "(whole lines: --verbose)"),
        (["b" * 80] * 22, "b" * 80),
        (["b" * 81] * 22, "(1 line more and whole lines: --verbose)"),
    ],
)
def test_the_short_status_fits_a_terminal_and_says_what_it_leaves_out(lines: list[str], last: str) -> None:
    shown = on_one_screen(lines)
    assert len(shown) <= 23
    assert max(map(len, shown)) <= 80
    assert shown[-1] == last


def test_status_as_json_is_one_report_with_each_workers_own_beside_it(run_directory, capsys):
    now = SystemClock().now()
    for slot in (0, 1):
        StatusFile(run_directory, slot).write(msgspec.structs.replace(report_of(slot, at=now), counts={"records": 2}))
    assert main(["status", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["counts"], shown["worker_count"]) == ("ready", {"records": 4}, 2)
    assert [(each["slot"], each["state"], each["counts"]) for each in shown["workers"]] == [
        (0, "ready", {"records": 2}),
        (1, "ready", {"records": 2}),
    ]


def test_status_as_json_of_one_worker_has_no_workers(run_directory, capsys):
    StatusFile(run_directory).write(report_of(0, count=1, at=SystemClock().now()))
    assert main(["status", "--json"]) == 0
    assert "workers" not in json.loads(capsys.readouterr().out)


def test_the_whole_has_the_histograms_of_all_workers_and_the_server_that_one_of_them_misses():
    one = HistogramReport((1.0,), (2, 3), 7.5)
    here = ServerStatus(True, "2026-03-28T23:33:00.000Z")
    missed = ServerStatus(False, "2026-03-28T23:34:00.000Z", "no answer")
    first = msgspec.structs.replace(
        report_of(0), histograms={"publication": one}, servers={"storage": here, "output": here}, restart_causes={"hung": 1}
    )
    second = msgspec.structs.replace(
        report_of(1), histograms={"publication": one}, servers={"storage": missed}, restart_causes={"hung": 1, "signal": 2}
    )
    whole = together(first, second).whole
    assert whole.histograms == {"publication": HistogramReport((1.0,), (4, 6), 15.0)}
    assert whole.servers == {"storage": missed, "output": here}
    assert whole.restart_causes == {"hung": 2, "signal": 2}


def test_a_report_of_another_version_is_read_as_far_as_it_is_known(tmp_path):
    newer = {**msgspec.to_builtins(report_of(0)), "unheard_of": 1}
    older = {name: value for name, value in newer.items() if name not in ("histograms", "servers", "restart_causes")}
    older["partitions"] = [{"partition": "T-0", "read_to": 10, "acknowledged": 8, "unpublished": 0, "held_by": None, "lag": 5}]
    (tmp_path / "status.json").write_text(json.dumps(older), encoding="utf-8")
    found = StatusFile(tmp_path).find()
    assert found.partitions == (PartitionStatus("T-0", 10, 8, 0, None, 0, 5),)
    assert (found.histograms, found.servers, found.restart_causes) == ({}, {}, {})
