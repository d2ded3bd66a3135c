"""The guard around a handler: the envelope in flight, overruns, and a limit for servers that are unavailable."""

from typing import Any

import pytest
from harness.driving import Envelopes

from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from notification_service.wiring.handlers import WatchedHandler
from resequencer.errors import DependencyUnavailable, EndedItsWorker, PermanentError, TransientError
from resequencer.handler import Handled, Marks
from resequencer.in_flight import CallKind


class Stage:
    """A handler whose calls take time, the time that passes, and all that its guard says."""

    def __init__(self) -> None:
        self.at = 1_000_000
        self.takes_ms = 0
        self.calls = 0
        self.error: Exception | None = None
        self.is_refused = False
        self.heard: list[Any] = []
        self.watched = WatchedHandler(self, self, 3_000, lambda: self.at / 1_000, self.note)
        self.envelope = Envelopes()(1)

    def handle(self, *_: Any) -> Handled:
        self.heard.append("called")
        self.calls += 1
        self.at += self.takes_ms
        if self.error is not None:
            raise self.error
        return Handled()

    def take(self, envelope: DataEnvelope, kind: CallKind) -> None:
        if self.is_refused:
            raise EndedItsWorker("it ended 3 workers")
        self.heard.append((kind, envelope.offset))

    def postpone(self, envelope: DataEnvelope) -> None:
        self.heard.append(("put off", envelope.offset))

    def clear(self) -> None:
        self.heard.append("cleared")

    def note(self, envelope: DataEnvelope, error: Exception | None, took_ms: int) -> None:
        self.heard.append(("logged", error, took_ms))

    def call(self, takes_ms: int = 0, error: Exception | None = None) -> None:
        self.takes_ms, self.error = takes_ms, error
        if error is None:
            assert self.watched.handle(self.envelope, PaymentData(), Marks(), 17) == Handled()
            return
        with pytest.raises(type(error)):
            self.watched.handle(self.envelope, PaymentData(), Marks(), 17)

    def calls_in(self, milliseconds: int, every_ms: int, takes_ms: int) -> int:
        """Return how many calls reach an unavailable server while envelopes come one after the other."""
        before, until = self.calls, self.at + milliseconds
        while self.at < until:
            self.call(takes_ms, DependencyUnavailable("sanctions-api"))
            self.at += every_ms
        return self.calls - before


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_the_envelope_is_in_flight_from_before_the_call_until_after_it(stage: Stage) -> None:
    stage.call()
    assert stage.heard == [(CallKind.HANDLING, 1), "called", "cleared"]


@pytest.mark.parametrize(
    ("error", "between"),
    [
        (TransientError("away"), [("put off", 1), "logged"]),
        (DependencyUnavailable("away"), [("put off", 1)]),
        (PermanentError("never"), ["logged"]),
        (ValueError("a mistake"), ["logged"]),
    ],
)
def test_it_is_let_go_when_the_call_fails_and_put_off_when_it_will_be_made_again(
    stage: Stage, error: Exception, between: list[Any]
) -> None:
    stage.call(error=error)
    logged = [("logged", error, 0) if each == "logged" else each for each in between]
    assert stage.heard == [(CallKind.HANDLING, 1), "called", *logged, "cleared"]


def test_an_envelope_that_is_refused_is_not_handled(stage: Stage) -> None:
    stage.is_refused = True
    stage.call(error=EndedItsWorker("it ended 3 workers"))
    assert stage.heard == []


@pytest.mark.parametrize(("takes_ms", "overruns"), [(0, 0), (3_000, 0), (3_001, 1), (-100_000, 0)])
def test_a_call_that_took_longer_than_the_timeout_is_counted_and_its_result_kept(
    stage: Stage, takes_ms: int, overruns: int
) -> None:
    stage.call(takes_ms)
    assert stage.watched.overruns == overruns
    assert [each for each in stage.heard if each[0] == "logged"] == [("logged", None, takes_ms)] * overruns


def test_a_call_that_failed_late_is_counted_too(stage: Stage) -> None:
    stage.call(4_000, TransientError("asleep"))
    assert stage.watched.overruns == 1


def test_calls_that_fail_at_once_are_all_made(stage: Stage) -> None:
    assert stage.calls_in(1_000, every_ms=1, takes_ms=0) == 1_000


@pytest.mark.slow
def test_calls_that_fail_slowly_take_half_of_the_time(stage: Stage) -> None:
    assert stage.calls_in(60_000, every_ms=1, takes_ms=3_000) in (10, 11)
    assert 1_400 < stage.calls_in(60_000, every_ms=1, takes_ms=20) < 1_600


def test_others_are_called_as_soon_as_there_is_time_again(stage: Stage) -> None:
    stage.calls_in(1, every_ms=1, takes_ms=3_000)
    stage.error = None
    with pytest.raises(DependencyUnavailable, match="sanctions-api unavailable"):
        stage.watched.handle(stage.envelope, PaymentData(), Marks(), 17)
    stage.at += 3_000
    stage.call()


@pytest.mark.parametrize("error", [None, PermanentError("no")])
def test_what_takes_long_for_another_reason_is_called_each_time(stage: Stage, error: Exception | None) -> None:
    for _ in range(10):
        stage.call(60_000, error)
    assert stage.calls == 10
