"""A turn that raises leaves its unit as it was, wherever it raises."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from harness.driving import Driven, Envelopes, drive

import resequencer.unit
from resequencer.call import Answer
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.order import OrderKind
from resequencer.strategies.window import OrderBy
from resequencer.unit import Unit, Wake

_CODE = Path(resequencer.unit.__file__).parent
_TRACED = {str(_CODE / "unit.py"), *(str(each) for each in (_CODE / "turn").glob("*.py"))}


class Raised(Exception):
    """Raised between two lines."""


@contextmanager
def raising_at(number: int) -> Iterator[list[int]]:
    """Raise at the line with this number, counted from 0, of those that a turn runs in units and turns; yield how many it ran."""
    run = [0]

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            run[0] += 1
            if run[0] > number:
                sys.settrace(None)
                raise Raised
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        is_within = frame.f_code.co_filename in _TRACED and frame.f_code.co_name not in ("take_turn", "saved")
        return line if is_within else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield run
    finally:
        sys.settrace(before)


def what_is_in(unit: Unit) -> tuple[Any, ...]:
    """Return all that a unit holds. What was saved of the stash is a copy of it."""
    state, data, size, handled, gathered_to, rare, stash, _ = unit.saved()
    found = [unit.find_digest(each.envelope.id_hash) for each in unit.stash]
    return state, data, size, handled, gathered_to, rare, list(stash), unit.stashed_bytes, found, unit.oldest


def arrivals(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    """One is handled and frees two of three, one is a duplicate, one is stashed, and one is another's id."""
    third = envelopes(3, mds=("B",))
    unit.arrive(envelopes(2), third, envelopes(5))
    came = (envelopes(1, mds=("A",)), envelopes.again(third), envelopes(7), envelopes(8, identity="A-3-1", note=1))
    return lambda: unit.arrive_together(*came)


def deadline(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    unit.arrive(envelopes(3), envelopes(4), envelopes(6))
    return unit.expire


def attempts(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    """Of three that are freed one fails for ever, and the next finds its server unavailable."""
    first, second, third = (envelopes(number) for number in (1, 2, 3))
    unit.handler.fail(first, *[PermanentError("never")] * 9_999)
    unit.handler.fail(second, *[DependencyUnavailable("register")] * 9_999)
    unit.arrive(third, second)
    return lambda: unit.arrive_together(first, envelopes(4))


def retry(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    first = envelopes(1)
    unit.handler.fail(first, *[TransientError("away")] * 9_999)
    unit.arrive(first, envelopes(2), envelopes(3))
    return lambda: unit.wake(Wake.RETRY, after_ms=3_000)


def bound(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    unit.arrive(*(envelopes(number) for number in (9, 8, 7, 6)))
    return lambda: unit.arrive(envelopes(5))


def remainder(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    unit.budget = 1
    unit.arrive(envelopes(4), envelopes(3), envelopes(2))
    unit.arrive_together(envelopes(1), envelopes(6), envelopes(5))
    unit.budget = 1_500
    return lambda: unit.wake(Wake.REMAINDER)


def held(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    unit.arrive(envelopes(2))
    unit.order(OrderKind.HOLD, for_ms=60_000)
    unit.arrive(envelopes(1))
    return lambda: unit.order(OrderKind.RESUME)


def ordered(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    unit.arrive(envelopes(3), envelopes(4))
    return lambda: unit.order(OrderKind.SKIP)


def answered(unit: Driven, envelopes: Envelopes) -> Callable[[], object]:
    """The release that the answer continues is interrupted by the next call."""
    unit.waits = True
    unit.arrive(envelopes(3), envelopes(4), envelopes(6))
    unit.expire()
    call, unit.call = unit.call, None
    assert call is not None
    answer = Answer(call, unit.handler.handle(call.envelope, call.data, call.marks, call.now))
    return lambda: unit.take_up(answer)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001", "WINDOW"])
@pytest.mark.parametrize("course", [arrivals, deadline, attempts, retry, bound, remainder, held, ordered, answered])
def test_wherever_a_turn_raises_its_unit_is_as_before(strategy: str, course: Callable[..., Any], envelopes: Envelopes) -> None:
    unit = drive(strategy, stash_limit=4, order_by=OrderBy.SEQUENCE)
    turn = course(unit, envelopes)
    before, at, now = what_is_in(unit.unit), unit.now, 0
    while True:
        unit.now, unit.orders = at, 10
        with raising_at(now) as lines:
            try:
                turn()
            except Raised:
                pass
            else:
                break
        assert what_is_in(unit.unit) == before, f"line {now}"
        now += 1
    assert now == lines[0] > 30
