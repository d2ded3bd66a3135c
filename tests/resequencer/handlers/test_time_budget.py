"""The time budget: calls to an unavailable server that answers late take at most half of the worker's time."""

from typing import Any

import pytest

from domain.errors import DependencyUnavailable, PermanentError
from resequencer.handlers.port import Handled, Marks
from resequencer.handlers.time_budget import TimeBudget
from resequencer.payment_data import PaymentData


class Slow:
    """A handler whose calls take time, and the clock that they advance."""

    def __init__(self) -> None:
        self.at = 1_000_000
        self.takes_ms = 0
        self.calls = 0
        self.error: Exception | None = DependencyUnavailable("sanctions-api")

    def now(self) -> int:
        return self.at

    def handle(self, *_: Any) -> Handled:
        self.calls += 1
        self.at += self.takes_ms
        if self.error is not None:
            raise self.error
        return Handled()


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def call(slow: Slow, envelope: Any) -> Any:
    spared, came = TimeBudget(slow, slow), envelope(("PaymentAccepted", "PaymentInitiationFlow", None))
    return lambda: spared.handle(came, PaymentData(), Marks(), slow.at)


def calls_in(slow: Slow, call: Any, milliseconds: int, every_ms: int) -> int:
    """Return how many calls reach the handler while envelopes come one after the other."""
    before, until = slow.calls, slow.at + milliseconds
    while slow.at < until:
        with pytest.raises(DependencyUnavailable, match="sanctions-api unavailable"):
            call()
        slow.at += every_ms
    return slow.calls - before


def test_calls_that_fail_at_once_are_all_made(slow: Slow, call: Any) -> None:
    assert calls_in(slow, call, 1_000, every_ms=1) == 1_000


@pytest.mark.slow
def test_calls_that_fail_slowly_take_half_of_the_time(slow: Slow, call: Any) -> None:
    slow.takes_ms = 3_000
    assert calls_in(slow, call, 60_000, every_ms=1) in (10, 11)
    slow.takes_ms = 20
    assert 1_400 < calls_in(slow, call, 60_000, every_ms=1) < 1_600


def test_others_are_called_as_soon_as_there_is_time_again(slow: Slow, call: Any) -> None:
    slow.takes_ms = 3_000
    calls_in(slow, call, 1, every_ms=1)
    slow.error = None
    with pytest.raises(DependencyUnavailable):
        call()
    slow.at += 3_000
    assert call() == Handled()


@pytest.mark.parametrize("error", [None, PermanentError("no")])
def test_what_takes_long_for_another_reason_is_called_each_time(error: Exception | None, slow: Slow, call: Any) -> None:
    slow.takes_ms, slow.error = 60_000, error
    for _ in range(10):
        if error is None:
            call()
        else:
            with pytest.raises(PermanentError):
                call()
    assert slow.calls == 10


def test_a_clock_that_was_set_back_delays_no_call_for_long(slow: Slow, call: Any) -> None:
    slow.takes_ms = 3_000
    calls_in(slow, call, 1, every_ms=1)
    slow.at -= 10_000_000
    with pytest.raises(DependencyUnavailable):
        call()
    slow.at += 2_000
    slow.error = None
    assert call() == Handled()
