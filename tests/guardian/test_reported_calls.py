"""What operators see of the calls of a handler that waits: those under way, the longest, time-outs, and those that do not end."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from harness.driving import PARTITION, Driven, Envelopes
from harness.service_under_test import BEGINNING, Service

from guardian.calls import Calls, CallsReport, Ended
from guardian.metrics import STEP_BOUNDS, HistogramReport
from notification_service.payments.strategies import StrategySettings, make_strategy
from notification_service.status.report import CallsStatus, Identity, State, StatusReport, report
from notification_service.worker.worker_report import with_metrics
from resequencer.batch import UnitKey
from resequencer.call import Call
from resequencer.handler import Handled
from resequencer.record import Partition


class Stage:
    """Calls with a time-out of 3 s, two at most side by side. They end when the test says so."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.running: list[Call] = []
        self.over: list[Ended] = []
        self.calls = Calls(self, 2, 3_000, lambda: self.seconds)

    def must_be_alone(self, call: Call) -> bool:
        return call.attempts < 0

    def start(self, call: Call) -> None:
        self.running.append(call)

    def cancel(self, call: Call) -> None:
        assert call in self.running

    @property
    def has_ended(self) -> bool:
        return bool(self.over)

    def ended(self) -> Sequence[Ended]:
        ended, self.over = self.over, []
        return ended

    def wait(self, seconds: float) -> None:
        self.seconds += seconds

    def close(self) -> None: ...

    def accept(self, *units: str) -> None:
        """Accept an envelope of each unit, and begin what may begin."""
        for unit in units:
            driven = Driven(make_strategy(StrategySettings("SEQUENCE")), waits=True)
            turn = driven.arrive(msgspec.structs.replace(Envelopes()(1), unit=unit))
            turn.key = UnitKey(PARTITION, unit)
            self.calls.note(turn)
        self.calls.begin()

    def end(self, call: Call) -> None:
        self.running.remove(call)
        self.over.append(Ended(call, Handled(), self.seconds))
        self.calls.take(1_000)

    def pass_by(self, seconds: float) -> CallsReport:
        self.seconds += seconds
        self.calls.take(1_000)
        return self.calls.report()


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_longest_call_is_named_and_those_that_wait_to_begin_are_counted(stage: Stage) -> None:
    stage.accept("a")
    stage.seconds += 0.5
    stage.accept("b", "c")
    reported = stage.pass_by(1.6)
    assert (reported.under_way, reported.waiting, reported.lingering) == (2, 1, 0)
    assert (reported.longest, reported.longest_ms) == (stage.running[0].key, 2_100)
    assert reported.longest is not None
    assert reported.longest.unit == "a"


def test_a_call_that_goes_on_after_its_time_out_is_counted_and_named_until_it_ends(stage: Stage) -> None:
    stage.accept("a")
    reported = stage.pass_by(3.5)
    assert (reported.under_way, reported.lingering, reported.timeouts) == (0, 1, 1)
    assert [each.unit for each in reported.lingering_units] == ["a"]
    stage.end(stage.running[0])
    reported = stage.pass_by(1)
    assert (reported.lingering, reported.timeouts, reported.lingering_units) == (0, 1, ())


def test_each_call_is_one_duration_until_its_answer_or_its_time_out(stage: Stage) -> None:
    stage.accept("a", "b")
    stage.seconds += 0.02
    stage.end(stage.running[0])
    stage.pass_by(3)
    stage.end(stage.running[0])
    durations = stage.pass_by(1).durations
    assert durations is not None
    assert durations.bounds == STEP_BOUNDS
    assert (durations.counts[STEP_BOUNDS.index(0.025)], durations.counts[STEP_BOUNDS.index(2.5)], durations.counts[-1]) == (
        1,
        1,
        2,
    )
    assert durations.sum == pytest.approx(0.02 + 3.02)


def reported(service: Service, calls: CallsReport | None) -> StatusReport:
    plain = report(Identity(1, "x.conf", BEGINNING), State.READY, None, BEGINNING)
    standing = service.servers.transport.standing()
    return with_metrics(plain, service.cycle, service.report_units(), standing, 5, calls, BEGINNING)


def test_a_workers_report_has_its_calls_their_time_outs_and_a_few_of_those_that_go_on(tmp_path: Path) -> None:
    service = Service(tmp_path).start()
    keys = tuple(UnitKey(Partition("T", 0), f"u-{number}") for number in range(9))
    durations = HistogramReport((1.0,), (3, 4), 6.0)
    shown = reported(service, CallsReport(12, 3, 9, 4, keys[8], 2_149, keys, durations))
    assert shown.calls == CallsStatus(12, 3, 9, "u-8", 2_149, ("u-0", "u-1", "u-2", "u-3", "u-4"))
    assert (shown.counts["timeouts"], shown.counts["overruns"], shown.histograms["call"]) == (4, 5, durations)
    plain = reported(service, None)
    service.kill()
    assert (plain.calls, plain.counts["timeouts"], "call" in plain.histograms) == (None, 0, False)
