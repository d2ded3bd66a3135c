from collections.abc import Callable
from typing import Any

import pytest

from domain.errors import TransientError
from resequencer.handlers.overrun import OverrunCounter
from resequencer.handlers.port import Handled, Marks

HANDLED = Handled((), 1)


class HandClock:
    def __init__(self) -> None:
        self.instant = 1_000

    def now(self) -> int:
        return self.instant


class SlowHandler:
    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.takes_ms = 0
        self.error: Exception | None = None

    def handle(self, *arguments: Any) -> Handled:
        self.clock.instant += self.takes_ms
        if self.error is not None:
            raise self.error
        return HANDLED


@pytest.fixture
def slow() -> SlowHandler:
    return SlowHandler(HandClock())


@pytest.fixture
def attempt(slow: SlowHandler, envelope: Callable[..., Any], data_of: Callable[..., Any]) -> Callable[[int], OverrunCounter]:
    counter = OverrunCounter(slow, slow.clock, 3_000)

    def attempt(takes_ms: int) -> OverrunCounter:
        slow.takes_ms = takes_ms
        assert counter.handle(envelope(), data_of(), Marks(), 1_000) is HANDLED
        return counter

    return attempt


def test_an_attempt_within_the_timeout_is_no_overrun(attempt: Callable[[int], OverrunCounter]) -> None:
    assert attempt(0).overruns == attempt(3_000).overruns == 0


def test_an_attempt_that_took_longer_is_counted_and_its_result_kept(attempt: Callable[[int], OverrunCounter]) -> None:
    assert attempt(3_001).overruns == 1
    assert attempt(10_000).overruns == 2


def test_an_attempt_that_failed_late_is_counted_too(
    slow: SlowHandler, envelope: Callable[..., Any], data_of: Callable[..., Any]
) -> None:
    counter = OverrunCounter(slow, slow.clock, 3_000)
    slow.takes_ms, slow.error = 4_000, TransientError("asleep")
    with pytest.raises(TransientError):
        counter.handle(envelope(), data_of(), Marks(), 1_000)
    assert counter.overruns == 1


def test_a_clock_that_jumps_back_is_no_overrun(attempt: Callable[[int], OverrunCounter]) -> None:
    assert attempt(-100_000).overruns == 0
