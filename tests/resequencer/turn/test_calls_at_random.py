"""Whatever happens to a unit, a handler that waits makes of it what a handler in the turn makes."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from harness.crashes.told_marks import find_wrong_mark
from harness.driving import PAIN_001, Driven, Envelopes, drive
from harness.examples import examples
from harness.service_under_test import Told
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import LATEST_OBJECTS
from resequencer.batch import WITHOUT_END
from resequencer.call import Answer, Call
from resequencer.dead_letter import DeadLetter
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.notification import Notification
from resequencer.order import OrderKind
from resequencer.strategies.window import OrderBy
from resequencer.unit import Wake
from resequencer.unit_codec import encode_state

STRATEGIES: Mapping[str, Mapping[str, Any]] = {
    "SEQUENCE": {},
    "STRICT_SEQUENCE": {},
    "FULL_PAIN001": {},
    "WINDOW": {"order_by": OrderBy.SEQUENCE, "reorder_window_ms": 2_000, "stash_timeout_ms": 2_000},
    "PREVIOUS": {},
}
AWAY, NEVER, GONE = TransientError("away"), PermanentError("never"), DependencyUnavailable("register")
GIVE_UP = (OrderKind.SKIP, OrderKind.DEAD_LETTER)
FAILURES = ([], [], [], [], [], [NEVER], [AWAY], [AWAY] * 3, [GONE], [GONE, AWAY, GONE], [AWAY, NEVER])


class Course:
    """Random arrivals, wakes and orders.

    With `is_tidy` each number comes once, nothing fails for good, and no order gives something up: then the marks can be checked
    by what has left alone.
    """

    def __init__(self, seed: int, strategy: str, *, is_tidy: bool = False) -> None:
        self.random = Random(seed)
        self.is_tidy = is_tidy
        self.strategy = strategy
        limit = self.random.choice((4, 1_000) if strategy == "WINDOW" else (2, 4, 1_000))
        self.settings = {"stash_limit": limit, **STRATEGIES[strategy]}
        self._make = Envelopes()
        self.made: list[DataEnvelope] = []
        self._numbers = iter(sorted(range(1, 200), key=lambda number: number + self.random.uniform(0, 4)))

    def unit(self, **how: Any) -> Driven:
        unit = drive(self.strategy, **self.settings)
        unit.keeps_events = self.strategy == "PREVIOUS"
        for name, value in how.items():
            setattr(unit, name, value)
        return unit

    def envelope(self, *units: Driven) -> DataEnvelope:
        """Make an envelope, or another record of one, on which the handlers of the units fail as often as chance says."""
        random = self.random
        if self.made and random.random() < 0.1:
            return self._make.again(random.choice(self.made))
        if self.made and random.random() < 0.03 and not self.is_tidy:
            return self._make(1, flow="C", identity=random.choice(self.made).envelope_id)
        parts = random.choice(((), (), ("PAIN_001",), PAIN_001))
        number = next(self._numbers) if self.is_tidy else random.randint(1, 12)
        if self.strategy == "WINDOW":  # A tie of a dead letter waits for the end of its own window.
            number = 1_000 * number + len(self.made)
        made = self._make(number, flow=random.choice("AB"), mds=parts)
        if self.strategy == "PREVIOUS":
            number = number if self.is_tidy else next(self._numbers)
            before = (number - 1,) if self.is_tidy else (number - 1, number - 1, number - 3)
            made = replace(made, previous=None if number == 1 else f"{random.choice(before)}")
            made = replace(self._make(number, identity=f"{number}"), previous=made.previous)
        failures = random.choice(FAILURES)
        if self.is_tidy:
            failures = [each for each in failures if each is not NEVER][:2]
        elif self.strategy == "PREVIOUS":  # Of chains beside each other another one may go first, and fail first.
            failures = [each for each in failures if each is NEVER]
        for each in units:
            each.handler.fail(made, *failures)
        self.made.append(made)
        return made

    def step(self, *units: Driven) -> None:
        """Let one thing happen to all units."""
        random = self.random
        after_ms = random.choice((0, 0, 500, 3_000, 6_000, 30_000))
        for each in units:
            each.now += after_ms
        kind = random.random()
        if kind < 0.6:
            came = [self.envelope(*units) for _ in range(random.choice((1, 1, 2, 4)) if self.is_tidy else 1)]
            self._do(units, lambda unit: unit.arrive_together(*came))
        elif kind < 0.85:
            wake = random.choice((*(Wake.RETRY, Wake.DEADLINE, Wake.ORDER) * 2, Wake.BOUND, Wake.HOLD_OVER, Wake.CALL))
            if wake is not Wake.BOUND or (units[0].unit.hold is None and units[0].unit.dependency is None):
                self._do(units, lambda unit: unit.wake(wake))
        else:
            orders = [each for each in OrderKind if not each.is_of_partition]
            order = random.choice([each for each in orders if each not in GIVE_UP] if self.is_tidy else orders)
            more = {"for_ms": random.choice((1_000, 60_000)), "until": units[0].now + 5_000}
            position = random.choice(self.made).offset if self.made else 1
            unread_to = random.choice((None, 9))
            self._do(units, lambda unit: unit.order(order, position=position, unread_to=unread_to, **more))

    def _do(self, units: tuple[Driven, ...], act: Callable[[Driven], object]) -> None:
        for each in units:
            act(each)
            each.let_out_the_rest(self.random.choice((0, 1, 2)) if self.is_tidy else 1_000_000)


def output(unit: Driven) -> list[tuple[str, ...]]:
    """Return what was notified and dead-lettered, with marks and data, in order."""
    seen = {each.envelope_id: (data, marks) for each, data, marks, _ in unit.handler.seen}
    found: list[tuple[str, ...]] = []
    for each in unit.left:
        if isinstance(each, DeadLetter):
            found.append(("dead", str(each.record.origin.offset), str(each.reason), each.error))
        elif isinstance(each, Notification):
            data, marks = seen[each.notification_id]
            found.append((each.notification_id, str(marks), str(data)))
    return found


def kept(unit: Driven) -> tuple[object, ...]:
    """Return the unit as it would be stored, and what it waits for."""
    assert unit.last is not None
    whole = unit.unit.copy()
    if whole.retry is not None:
        whole.amend(retry=replace(whole.retry, released_to=-1))  # Where waits release, each part of a release has its own.
    stored = encode_state(whole, unit.strategy)
    return stored, LATEST_OBJECTS.encode(unit.unit.data), [each.offset for each in unit.unit.stash], unit.last.waits


def finish(*units: Driven) -> None:
    """Let time pass and calls be answered until nothing waits."""
    for each in units:
        for _ in range(300):
            assert each.last is not None
            if each.last.waits is None:
                break
            each.now += 60_000
            for wake in (Wake.HOLD_OVER, Wake.RETRY, Wake.DEADLINE, Wake.CALL):
                each.wake(wake)
                each.let_out_the_rest()
            answer(each)
        assert each.last.waits is None
        assert each.stored is None or each.stored.stash == ()


def answer(unit: Driven) -> None:
    if unit.call is not None:
        unit.answer()
        unit.let_out_the_rest()


def check_without_effect(unit: Driven, calls: Sequence[Call]) -> None:
    """An answer of another call is without effect, but what was due anyway may leave."""
    for each in calls[-2:]:
        before, stashed, head = len(unit.left), len(unit.unit.stash), unit.unit.retry
        if unit.has_remainder:
            continue
        unit.take_up(Answer(each, PermanentError("it is of another call")))
        assert (len(unit.left), len(unit.unit.stash)) == (before, stashed)
        assert unit.unit.retry is head or unit.reincarnates


def results(unit: Driven) -> list[tuple[str, str]]:
    return [(each.order.id, each.result) for each in unit.outcomes if each.order is not None]


@pytest.mark.slow
@given(st.integers(0), st.sampled_from([*STRATEGIES]), st.sampled_from((WITHOUT_END, 1, 1_500)), st.booleans())
@settings(max_examples=examples(200))
def test_with_answers_at_once_all_that_leaves_is_what_leaves_with_a_handler_in_the_turn(
    seed: int, strategy: str, budget: int, reincarnates: bool
) -> None:
    """With PREVIOUS, chains beside each other may leave in another order."""
    course, in_order = Course(seed, strategy), sorted if strategy == "PREVIOUS" else list
    in_turn = course.unit()
    called = course.unit(waits=True, answers_at_once=True, budget=budget, reincarnates=reincarnates)
    for _ in range(course.random.randint(1, 30)):
        course.step(in_turn, called)
        assert in_order(output(called)) == in_order(output(in_turn))
        assert results(called) == results(in_turn)
        assert strategy == "PREVIOUS" or kept(called) == kept(in_turn)
    finish(in_turn, called)
    assert in_order(output(called)) == in_order(output(in_turn))


@pytest.mark.slow
@given(st.integers(0), st.sampled_from([*STRATEGIES]), st.sampled_from((WITHOUT_END, 1, 1_500)), st.booleans())
@settings(max_examples=examples(200))
def test_whenever_answers_come_all_leave_once_in_order_and_nothing_stays(
    seed: int, strategy: str, budget: int, reincarnates: bool
) -> None:
    course = Course(seed, strategy, is_tidy=True)
    unit, others = course.unit(waits=True, budget=budget, reincarnates=reincarnates), list[Call]()
    for _ in range(course.random.randint(1, 40)):
        course.step(unit)
        if course.random.random() < 0.1 and unit.call is not None:
            others.append(replace(unit.call, attempts=unit.call.attempts + 1))
        if course.random.random() < 0.4:
            others += [unit.call] if unit.call is not None else []
            answer(unit)
        check_without_effect(unit, [each for each in others if not unit.is_of_head(each)])
    finish(unit)
    assert sorted(name for name, _ in results(unit)) == sorted(f"order-{number + 1}" for number in range(unit.orders))
    ended = [each[:2] if each[0] == "dead" else each[:1] for each in output(unit)]
    assert len(set(ended)) == len(ended)
    dead = {each.record.origin.offset for each in unit.dead}
    notified = {each.notification_id for each in unit.left if isinstance(each, Notification)}
    assert {each.envelope_id for each in course.made if each.offset not in dead} <= notified
    calls = Counter(each.envelope_id for each, *_ in unit.handler.seen)
    assert max(calls.values(), default=0) <= 3
    assert find_wrong_mark(_notified(unit), strategy) is None


def _notified(unit: Driven) -> Iterator[Told]:
    seen = {each.envelope_id: (each, marks) for each, _, marks, _ in unit.handler.seen}
    for each in unit.left:
        if isinstance(each, Notification):
            envelope, marks = seen[each.notification_id]
            identity = f"uow-1#{envelope.flow}#{envelope.sequence}"
            yield Told("", "uow-1", identity, envelope.sequence, (), marks.incomplete, marks.late, False)
