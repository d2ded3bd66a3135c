"""A hold of a unit: nothing of it is handled until it is resumed or the hold ends; the hold has one outcome."""

import pytest
from harness.driving import Driven, Envelopes, drive

from resequencer.clock import instant_text
from resequencer.errors import TransientError
from resequencer.order import LONGEST_HOLD_MS, OrderKind, OrderResult
from resequencer.storage_port import WaitKind
from resequencer.unit import Wake
from tests.resequencer.turn.ordered_units import HOUR, result, under_retry, waiting


def test_a_held_unit_handles_nothing_and_has_its_one_outcome_at_the_end(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 1)
    assert unit.order(OrderKind.HOLD, for_ms=HOUR) is None
    unit.arrive(envelopes(2), envelopes(3))
    assert unit.sequences == [1]
    assert unit.last is not None
    waits = unit.last.waits
    assert waits is not None
    assert (waits.kind, waits.wakes_at, waits.stashed) == (WaitKind.HELD, unit.now + HOUR, 2)
    assert waits.waits_for == "the end of the hold by anna"
    unit.wake(Wake.HOLD_OVER, after_ms=HOUR - 1)
    assert unit.outcomes == []
    unit.wake(Wake.HOLD_OVER, after_ms=1)
    assert unit.sequences == [1, 2, 3]
    assert [each.result for each in unit.outcomes] == [OrderResult.HELD_TO_ITS_END]
    assert unit.last.waits is None


def test_a_held_unit_without_a_stash_counts_as_waiting_since_its_hold(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 1)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    assert unit.last is not None
    assert unit.last.waits is not None
    assert (unit.last.waits.since, unit.last.waits.stashed) == (unit.now, 0)


def test_resume_ends_the_hold_and_both_orders_have_an_outcome(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 1)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.arrive(envelopes(2))
    assert result(unit.order(OrderKind.RESUME)) is OrderResult.DONE
    assert [each.result for each in unit.outcomes] == [OrderResult.HELD_UNTIL_RESUMED, OrderResult.DONE]
    assert unit.sequences == [1, 2]
    assert result(unit.order(OrderKind.RESUME)) is OrderResult.REFUSED_IMPOSSIBLE


def test_the_deadline_rests_during_a_hold(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    unit.now += 5_000
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.wake(Wake.DEADLINE, after_ms=30_000)
    assert unit.sequences == []
    unit.order(OrderKind.RESUME)
    assert unit.last is not None
    assert unit.last.waits is not None
    assert (unit.last.waits.kind, unit.last.waits.wakes_at) == (WaitKind.DEADLINE, unit.now + 16_000)
    unit.wake(Wake.DEADLINE, after_ms=15_999)
    assert unit.sequences == []
    unit.wake(Wake.DEADLINE, after_ms=1)
    assert unit.sequences == [2]


def test_what_is_stashed_during_a_hold_has_its_whole_wait_afterwards(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 1)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.now += 60_000
    unit.arrive(envelopes(3))
    unit.wake(Wake.HOLD_OVER, after_ms=HOUR)
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.wakes_at == unit.now + 21_000


def test_a_deadline_that_an_order_set_does_not_outlive_what_waited(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    unit.order(OrderKind.EXTEND, until=unit.now + HOUR)
    unit.arrive(envelopes(1), envelopes(4))
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.wakes_at == unit.now + 21_000


def test_a_held_unit_keeps_its_retry_until_it_is_resumed(envelopes: Envelopes) -> None:
    unit = under_retry(envelopes, TransientError("not now"))
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.wake(Wake.RETRY, after_ms=60_000)
    assert unit.sequences == []
    unit.order(OrderKind.RESUME)
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.kind is WaitKind.RETRY
    unit.wake(Wake.RETRY)
    assert unit.sequences == [1, 2]


@pytest.mark.parametrize("is_workers", [False, True])
def test_a_bound_ends_a_hold(is_workers: bool, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 1, stash_limit=100 if is_workers else 2)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.arrive(envelopes(3), envelopes(4))
    assert unit.sequences == [1]
    if is_workers:
        unit.wake(Wake.BOUND)
    else:
        unit.arrive(envelopes(5))
    assert [each.result for each in unit.outcomes] == [OrderResult.HELD_UNTIL_BOUND]
    assert unit.sequences == ([1, 3, 4] if is_workers else [1, 3, 4, 5])
    assert not any(each.ordered for each in unit.marks)


@pytest.mark.parametrize("is_workers", [False, True])
def test_what_became_acceptable_during_a_hold_leaves_as_such_when_a_bound_ends_it(is_workers: bool, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 1, stash_limit=100 if is_workers else 2)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.arrive(envelopes(2), envelopes(4))
    unit.wake(Wake.BOUND) if is_workers else unit.arrive(envelopes(5))
    waits = [] if is_workers else [4, 5]
    assert [(each.incomplete, each.late) for each in unit.marks[:2]] == [(None, False)] * 2
    assert unit.sequences == [1, 2, *([4] if is_workers else [])]
    assert unit.last is not None
    assert (unit.last.waits.stashed if unit.last.waits else 0) == len(waits)


def test_what_is_late_after_a_hold_that_a_bound_ends_is_marked_late(envelopes: Envelopes) -> None:
    unit = drive("SEQUENCE", stash_limit=1)
    unit.arrive(envelopes(3))
    unit.expire()
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.arrive(envelopes(2), envelopes(1))
    assert unit.sequences == [3, 1, 2]
    assert [(each.incomplete, each.late) for each in unit.marks] == [("sequence:1", False), (None, True), (None, True)]


def test_a_held_unit_cannot_be_held_again_released_or_extended(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    refused = [
        unit.order(OrderKind.HOLD, for_ms=HOUR),
        unit.order(OrderKind.RELEASE),
        unit.order(OrderKind.SKIP),
        unit.order(OrderKind.EXTEND, until=unit.now + HOUR),
        unit.order(OrderKind.RETRY),
    ]
    assert [result(each) for each in refused] == [OrderResult.REFUSED_IMPOSSIBLE] * 5
    assert all(each is not None and f"held until {instant_text(unit.now + HOUR)}" in each.text for each in refused)


def test_a_hold_that_a_clock_ahead_began_ends_when_the_clock_is_right(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 1)
    unit.now += 30 * LONGEST_HOLD_MS
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.now -= 30 * LONGEST_HOLD_MS
    unit.wake(Wake.HOLD_OVER)
    assert [each.result for each in unit.outcomes] == [OrderResult.HELD_TO_ITS_END]


YEAR = 365 * 86_400_000


def deadline_in(unit: Driven) -> int:
    """Return in how many milliseconds the unit's deadline comes, after a look of the guardian that finds it too far away."""
    assert unit.last is not None
    if unit.last.waits is not None and unit.last.waits.wakes_at > unit.now + LONGEST_HOLD_MS:
        unit.wake(Wake.DEADLINE)
    waits = unit.last.waits
    assert waits is not None
    assert waits.kind is WaitKind.DEADLINE
    return waits.wakes_at - unit.now


@pytest.mark.parametrize("ahead_ms", [2 * LONGEST_HOLD_MS, YEAR])
def test_a_deadline_that_a_clock_ahead_set_when_a_hold_ended_is_set_anew(ahead_ms: int, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.now += ahead_ms
    unit.wake(Wake.HOLD_OVER)
    unit.now -= ahead_ms
    assert deadline_in(unit) == 21_000
    assert unit.sequences == []
    unit.wake(Wake.DEADLINE, after_ms=21_000)
    assert unit.sequences == [2]


def test_a_deadline_that_was_extended_by_a_clock_ahead_is_set_anew(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    unit.now += YEAR
    unit.order(OrderKind.EXTEND, until=unit.now + HOUR)
    unit.now -= YEAR
    assert deadline_in(unit) == 21_000


def test_an_extended_deadline_outlives_a_wake_by_a_clock_that_is_behind(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    unit.order(OrderKind.EXTEND, until=unit.now + LONGEST_HOLD_MS)
    unit.now -= YEAR
    unit.wake(Wake.RETRY)
    unit.now += YEAR
    assert deadline_in(unit) == LONGEST_HOLD_MS


@pytest.mark.parametrize(("extended_ms", "left_ms"), [(None, 21_000), (HOUR, LONGEST_HOLD_MS)])
def test_a_hold_that_a_clock_behind_began_leaves_no_longer_than_a_stash_or_an_order_asks_for(
    extended_ms: int | None, left_ms: int, envelopes: Envelopes
) -> None:
    unit = waiting(envelopes, 2)
    if extended_ms is not None:
        unit.order(OrderKind.EXTEND, until=unit.now + extended_ms)
    unit.now -= YEAR
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.now += YEAR
    unit.order(OrderKind.RESUME)
    assert deadline_in(unit) == left_ms


def test_what_waits_may_wait_for_longer_than_a_hold_if_it_is_set_so(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2, stash_timeout_ms=3 * LONGEST_HOLD_MS)
    unit.order(OrderKind.HOLD, for_ms=HOUR)
    unit.order(OrderKind.RESUME)
    unit.wake(Wake.DEADLINE, after_ms=HOUR)
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.wakes_at == unit.now + 3 * LONGEST_HOLD_MS - HOUR
