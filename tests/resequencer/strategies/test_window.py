"""WINDOW: what comes within the window is put in order, by numbers with gaps or by times."""

from itertools import permutations
from random import Random
from typing import Any

import pytest
from harness.driving import PARTITION, Driven, Envelopes, drive
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from notification_service.payments.payment_data import LATEST_OBJECTS
from resequencer.errors import PermanentError, TransientError
from resequencer.event import Event
from resequencer.order import OrderKind, OrderResult
from resequencer.storage_port import WaitKind
from resequencer.strategies.window import OrderBy
from resequencer.unit import Wake
from resequencer.unit_codec import UnitCodec

WINDOW_MS = 2_000


def window(order_by: OrderBy = OrderBy.SEQUENCE, **how: Any) -> Driven:
    return drive("WINDOW", order_by=order_by, reorder_window_ms=WINDOW_MS, stash_timeout_ms=WINDOW_MS, **how)


def at_time(envelope: Event, time: int) -> Any:
    return replace(envelope, time=time)


@pytest.mark.parametrize("reincarnates", [False, True])
def test_every_permutation_within_the_window_comes_out_in_order(envelopes: Envelopes, reincarnates: bool) -> None:
    made = [envelopes(number) for number in (3, 17, 18, 400, 1_000)]
    for order in permutations(made):
        unit = window()
        unit.reincarnates = reincarnates
        unit.arrive(*order)
        assert unit.handled == []
        unit.wake(Wake.DEADLINE, after_ms=WINDOW_MS)
        assert unit.sequences == [3, 17, 18, 400, 1_000]
        assert all(marks.incomplete is None and not marks.late for marks in unit.marks)
        assert unit.last is not None
        assert unit.last.waits is None


def test_one_that_has_waited_leaves_with_all_before_it_and_the_others_wait_on(envelopes: Envelopes) -> None:
    unit = window()
    unit.arrive(envelopes(10))
    unit.now += 1_500
    unit.arrive(envelopes(20), envelopes(5))
    unit.wake(Wake.DEADLINE, after_ms=500)
    assert unit.sequences == [5, 10]
    assert unit.last is not None
    assert unit.last.waits is not None
    assert (unit.last.waits.wakes_at, unit.last.waits.waits_for) == (unit.now + 1_500, "window")
    unit.expire()
    assert unit.sequences == [5, 10, 20]


def test_before_the_window_is_over_nothing_leaves(envelopes: Envelopes) -> None:
    unit = window()
    unit.arrive(envelopes(1))
    unit.wake(Wake.DEADLINE, after_ms=WINDOW_MS - 1)
    assert unit.handled == []


def test_what_comes_behind_a_higher_one_leaves_at_once_and_is_late(envelopes: Envelopes) -> None:
    unit = window()
    unit.arrive(envelopes(10))
    unit.expire()
    unit.arrive(envelopes(9))
    assert unit.sequences == [10, 9]
    assert [marks.late for marks in unit.marks] == [False, True]
    unit.arrive(envelopes(10, flow="B"))
    assert [marks.late for marks in unit.marks] == [False, True, False], "the same number is in order"
    assert unit.sequences == [10, 9, 10]


@pytest.mark.parametrize("reincarnates", [False, True])
def test_a_dead_letter_makes_nothing_late(envelopes: Envelopes, reincarnates: bool) -> None:
    unit, fails = window(), envelopes(10)
    unit.reincarnates = reincarnates
    unit.handler.fail(fails, PermanentError("no"))
    unit.arrive(envelopes(5), fails)
    unit.expire()
    unit.arrive(envelopes(7), envelopes(8), envelopes.again(fails), envelopes(4))
    unit.expire()
    assert unit.sequences == [5, 4, 7, 8, 10]
    assert [marks.late for marks in unit.marks] == [False, False, True, False, False, False]


def test_equal_times_leave_in_order_of_arrival(envelopes: Envelopes) -> None:
    unit = window(OrderBy.TIME)
    unit.arrive(*(at_time(envelopes(number), unit.now - ago) for number, ago in ((1, 5), (2, 9), (3, 5), (4, 9))))
    unit.expire()
    assert unit.sequences == [2, 4, 1, 3]


def test_ties_leave_together_though_the_later_one_has_not_waited_its_time(envelopes: Envelopes) -> None:
    unit = window(OrderBy.TIME)
    first, second, third = (at_time(envelopes(number), unit.now) for number in (1, 2, 3))
    unit.arrive(first)
    unit.now += 1_500
    unit.arrive(second)
    unit.wake(Wake.DEADLINE, after_ms=500)
    unit.now += 100
    unit.arrive(third)
    assert unit.sequences == [1, 2, 3]
    assert not any(marks.late or marks.incomplete for marks in unit.marks)


def test_a_time_far_ahead_counts_as_the_arrival_and_later_ones_are_not_late(envelopes: Envelopes) -> None:
    unit = window(OrderBy.TIME)
    unit.arrive(at_time(envelopes(1), unit.now + 86_400_000))
    unit.expire()
    unit.arrive(at_time(envelopes(2), unit.now))
    unit.expire()
    assert unit.sequences == [1, 2]
    assert not any(marks.late for marks in unit.marks)


def test_a_time_far_ahead_counts_as_the_arrival_for_the_next_actor_too(envelopes: Envelopes) -> None:
    unit = window(OrderBy.TIME)
    ahead = at_time(envelopes(1), unit.now + 86_400_000)
    unit.arrive(ahead)
    assert unit.stored is not None
    restored = UnitCodec(unit.strategy, lambda _: ahead, LATEST_OBJECTS).restore(PARTITION, unit.stored)
    assert [each.envelope.time for each in restored.stash] == [unit.now]
    assert [each.order for each in restored.stash] == [each.order for each in unit.unit.stash]


@settings(max_examples=examples(60))
@given(st.integers(2, 300), st.integers(), st.booleans())
def test_whatever_comes_within_the_window_of_its_neighbours_is_in_order(count: int, seed: int, reincarnates: bool) -> None:
    """Each comes at most a window behind its turn, and whatever order that gives is mended."""
    chance, make, unit = Random(seed), Envelopes(), window()
    unit.reincarnates = reincarnates and count < 40
    numbers = sorted(chance.sample(range(1, 10 * count), count))
    arrivals = sorted((number * 10 + chance.randrange(WINDOW_MS), number) for number in numbers)
    began = unit.now
    for at, number in arrivals:
        while unit.last is not None and unit.last.waits is not None and unit.last.waits.wakes_at <= began + at:
            unit.expire()
        unit.now = began + at
        unit.arrive(make(number))
    while unit.last is not None and unit.last.waits is not None:
        unit.expire()
    assert unit.sequences == numbers
    assert not any(marks.late or marks.incomplete for marks in unit.marks)


@pytest.mark.parametrize("reincarnates", [False, True])
@pytest.mark.parametrize("budget", [1, 1 << 40])
def test_at_a_bound_the_first_leave_marked_and_the_others_wait_their_time(
    envelopes: Envelopes, reincarnates: bool, budget: int
) -> None:
    unit = window(stash_limit=3)
    unit.reincarnates, unit.budget = reincarnates, budget
    unit.arrive(*(envelopes(number) for number in (9, 7, 8, 6, 10)))
    assert unit.sequences == [6, 7]
    assert {marks.incomplete for marks in unit.marks} == {"window"}
    unit.expire()
    unit.let_out_the_rest()
    assert unit.sequences == [6, 7, 8, 9, 10]
    assert [marks.incomplete for marks in unit.marks[2:]] == [None] * 3


@pytest.mark.parametrize("reincarnates", [False, True])
def test_a_bound_that_the_output_budget_cuts_off_releases_no_more_than_is_beyond_it(
    envelopes: Envelopes, reincarnates: bool
) -> None:
    unit = window()
    unit.reincarnates, unit.budget = reincarnates, 1
    unit.arrive(*(envelopes(number) for number in (7, 8, 9, 6, 6)))
    unit.settings = replace(unit.settings, stash_limit=3)
    unit.arrive(envelopes(10))
    unit.let_out_the_rest()
    assert unit.sequences == [6, 6, 7]
    assert [marks.incomplete for marks in unit.marks] == ["window"] * 3
    unit.expire()
    unit.let_out_the_rest()
    assert unit.sequences == [6, 6, 7, 8, 9, 10]


def test_a_turn_at_its_bound_reports_one_release(envelopes: Envelopes) -> None:
    unit = window(stash_limit=100)
    unit.arrive(*(envelopes(number) for number in range(1, 101)))
    turn = unit.arrive_together(*(envelopes(number) for number in range(101, 151)))
    assert unit.sequences == list(range(1, 51))
    assert [(each.cause, each.missing, each.envelopes) for each in turn.releases] == [(Wake.BOUND, "window", 50)]


def test_at_the_bound_of_the_worker_all_leave_in_order(envelopes: Envelopes) -> None:
    unit = window()
    unit.arrive(*(envelopes(number) for number in (9, 7, 8)))
    unit.wake(Wake.BOUND)
    assert unit.sequences == [7, 8, 9]
    assert {marks.incomplete for marks in unit.marks} == {"window"}


def test_ties_with_the_first_leave_with_it_at_a_bound(envelopes: Envelopes) -> None:
    unit = window(stash_limit=2)
    unit.arrive(envelopes(5), envelopes(5, flow="B"), envelopes(6))
    assert unit.handled == [("A", 5), ("B", 5)]


def test_each_window_is_that_of_the_event_though_an_earlier_one_leaves(envelopes: Envelopes) -> None:
    """One that came later and is behind does not leave with it; one that came later and is before it does."""
    unit = window()
    for ahead_ms, number in ((0, 30), (500, 40), (500, 20), (500, 35)):
        unit.now += ahead_ms
        unit.arrive(envelopes(number))
    released = []
    while unit.last is not None and unit.last.waits is not None:
        unit.expire()
        released.append((unit.now - 1_000_000, list(unit.sequences)))
    assert released == [(2_000, [20, 30]), (2_500, [20, 30, 35, 40])]


def test_a_head_under_retry_holds_back_the_rest_of_its_window(envelopes: Envelopes) -> None:
    unit, fails = window(), envelopes(2)
    unit.reincarnates = True
    unit.handler.fail(fails, TransientError("away"))
    unit.arrive(envelopes(1), fails, envelopes(3))
    unit.expire()
    assert unit.sequences == [1]
    unit.wake(Wake.RETRY, after_ms=60_000)
    unit.expire()
    assert unit.sequences == [1, 2, 3]
    assert not any(marks.late or marks.incomplete for marks in unit.marks)


def test_a_release_that_runs_out_of_budget_continues_in_order_before_what_comes_later(envelopes: Envelopes) -> None:
    unit = window()
    unit.budget = 1
    unit.arrive(envelopes(3), envelopes(2), envelopes(1))
    unit.expire()
    assert unit.sequences == [1]
    assert unit.has_remainder
    unit.arrive(envelopes(4))
    unit.let_out_the_rest()
    assert unit.sequences == [1, 2, 3]
    unit.expire()
    assert unit.sequences == [1, 2, 3, 4]


def test_an_order_may_release_all_and_extend_the_wait_and_skips_nothing(envelopes: Envelopes) -> None:
    unit = window()
    unit.arrive(envelopes(5), envelopes(4))
    outcome = unit.order(OrderKind.SKIP)
    assert outcome is not None
    assert outcome.result is OrderResult.REFUSED_IMPOSSIBLE
    outcome = unit.order(OrderKind.EXTEND, until=unit.now + 60_000)
    assert outcome is not None
    assert outcome.result is OrderResult.DONE
    unit.wake(Wake.DEADLINE, after_ms=WINDOW_MS)
    assert unit.handled == []
    unit.arrive(envelopes(9))
    unit.wake(Wake.DEADLINE, after_ms=60_000)
    assert unit.sequences == [4, 5, 9]
    unit.arrive(envelopes(12), envelopes(11))
    outcome = unit.order(OrderKind.RELEASE)
    assert outcome is not None
    assert outcome.result is OrderResult.DONE
    assert unit.sequences == [4, 5, 9, 11, 12]
    assert [marks.ordered for marks in unit.marks[-2:]] == [True, True]


@pytest.mark.parametrize("reincarnates", [False, True])
@pytest.mark.parametrize("budget", [1, 1 << 40])
def test_an_order_may_set_a_deadline_before_the_end_of_the_window(envelopes: Envelopes, reincarnates: bool, budget: int) -> None:
    unit = window()
    unit.reincarnates, unit.budget = reincarnates, budget
    unit.arrive(envelopes(5), envelopes(4))
    unit.now += 100
    unit.arrive(envelopes(9))
    unit.order(OrderKind.EXTEND, until=unit.now + 400)
    unit.expire()
    unit.let_out_the_rest()
    assert unit.sequences == [4, 5]
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.wakes_at == unit.now + WINDOW_MS - 400, "the window of the next one is its own"
    unit.expire()
    assert unit.sequences == [4, 5, 9]
    assert not any(marks.late or marks.incomplete for marks in unit.marks)


def test_a_deadline_that_an_order_set_counts_though_a_retry_delays_it(envelopes: Envelopes) -> None:
    unit, fails = window(), envelopes(4)
    unit.reincarnates = True
    unit.handler.fail(fails, TransientError("away"))
    unit.arrive(envelopes(5), fails)
    unit.order(OrderKind.EXTEND, until=unit.now + 1)
    unit.expire()
    assert unit.last is not None
    assert unit.last.waits is not None
    unit.wake(Wake.RETRY, after_ms=unit.last.waits.wakes_at - unit.now)
    unit.wake(Wake.DEADLINE)
    assert unit.sequences == [4, 5]


def test_a_release_does_not_keep_an_extended_deadline_for_what_waits_on(envelopes: Envelopes) -> None:
    unit = window()
    unit.arrive(envelopes(5))
    unit.order(OrderKind.EXTEND, until=unit.now + 3_000)
    unit.now += 2_500
    unit.arrive(envelopes(9))
    unit.wake(Wake.DEADLINE, after_ms=500)
    assert unit.sequences == [5]
    assert unit.last is not None
    assert unit.last.waits is not None
    assert (unit.last.waits.kind, unit.last.waits.wakes_at) == (WaitKind.DEADLINE, unit.now + 1_500)
