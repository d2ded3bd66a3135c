"""Orders in the turn of a unit: each is executed once or refused with a reason, and has one outcome."""

import pytest
from harness.driving import PAIN_001, Envelopes, drive

from resequencer.clock import instant_text
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import DependencyUnavailable, TransientError
from resequencer.order import LONGEST_HOLD_MS, OrderKind, OrderResult
from resequencer.unit import Wake
from tests.resequencer.turn.ordered_units import HOUR, result, under_retry, waiting

# Release


def test_a_release_lets_out_what_waits_marked_with_what_was_missing_and_by_whom(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 3, 2)
    outcome = unit.order(OrderKind.RELEASE)
    assert outcome is not None
    assert (outcome.result, outcome.text) == (OrderResult.DONE, "released 2 envelopes")
    assert unit.sequences == [2, 3]
    assert [(each.incomplete, each.ordered) for each in unit.marks] == [("sequence:1", True)] * 2
    assert unit.last is not None
    assert unit.last.waits is None


def test_the_mark_of_an_order_is_not_that_of_a_deadline(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    unit.expire()
    assert [(each.incomplete, each.ordered) for each in unit.marks] == [("sequence:1", False)]


def test_a_release_that_a_retry_interrupts_goes_on_with_its_marks(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 3)
    two = envelopes(2)
    unit.handler.fail(two, TransientError("not now"))
    unit.arrive(two)
    outcome = unit.order(OrderKind.RELEASE)
    assert outcome is not None
    assert outcome.text == "released; 2 of 2 envelopes still wait to be handled"
    unit.wake(Wake.RETRY, after_ms=60_000)
    assert unit.sequences == [2, 3]
    assert all(each.ordered and each.incomplete == "sequence:1" for each in unit.marks)


def test_a_release_larger_than_its_share_goes_on_with_its_marks(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 4, 3, 2)
    unit.budget = 1
    assert result(unit.order(OrderKind.RELEASE)) is OrderResult.DONE
    assert unit.has_remainder
    unit.let_out_the_rest()
    assert unit.sequences == [2, 3, 4]
    assert all(each.ordered for each in unit.marks)


@pytest.mark.parametrize("kind", [OrderKind.RELEASE, OrderKind.SKIP])
def test_an_order_for_a_unit_that_has_changed_is_refused(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 3)
    seen = unit.last.waits if unit.last else None
    assert seen is not None
    unit.arrive(envelopes(1))
    outcome = unit.order(kind, waits_for=seen.waits_for, since=seen.since)
    assert outcome is not None
    assert outcome.result is OrderResult.REFUSED_CHANGED
    assert "it waits for sequence:2 since" in outcome.text
    unit.arrive(envelopes(2))
    assert result(unit.order(kind, waits_for=seen.waits_for, since=seen.since)) is OrderResult.REFUSED_CHANGED
    assert unit.sequences == [1, 2, 3]
    assert not any(each.ordered for each in unit.marks)


@pytest.mark.parametrize("kind", [OrderKind.RELEASE, OrderKind.SKIP])
def test_an_order_for_an_earlier_wait_for_the_same_is_refused(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = drive("FULL_PAIN001")
    turn = unit.arrive(envelopes(1))
    seen = turn.waits
    assert seen is not None
    unit.expire()
    unit.arrive(envelopes(2))
    assert result(unit.order(kind, waits_for=seen.waits_for, since=seen.since)) is OrderResult.REFUSED_CHANGED
    assert unit.sequences == [1]


@pytest.mark.parametrize("kind", [OrderKind.RELEASE, OrderKind.SKIP])
def test_an_order_that_was_given_twice_is_executed_once(kind: OrderKind, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2, 4)
    waits = unit.last.waits if unit.last else None
    assert waits is not None
    seen = {"waits_for": waits.waits_for, "since": waits.since}
    assert result(unit.order(kind, **seen)) is OrderResult.DONE
    assert result(unit.order(kind, **seen)) is OrderResult.REFUSED_CHANGED


@pytest.mark.parametrize("kind", [each for each in OrderKind if not each.is_of_partition])
def test_a_unit_that_is_not_known_stays_unknown(kind: OrderKind) -> None:
    unit = drive("SEQUENCE")
    outcome = unit.order(kind, waits_for="sequence:1", since=1, for_ms=HOUR, until=unit.now + HOUR, position=7)
    assert outcome is not None
    assert outcome.result is OrderResult.REFUSED_IMPOSSIBLE
    assert "not known here" in outcome.text
    assert unit.stored is None


# Skip


def test_a_skip_gives_up_the_lowest_missing_number_only(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2, 3, 5, 6)
    outcome = unit.order(OrderKind.SKIP)
    assert outcome is not None
    assert (outcome.result, outcome.text) == (OrderResult.DONE, "skipped sequence:1; 2 envelopes went on")
    assert unit.sequences == [2, 3]
    assert [(each.incomplete, each.ordered) for each in unit.marks] == [("sequence:1", True)] * 2
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.waits_for == "sequence:4"
    unit.arrive(envelopes(4))
    assert unit.sequences == [2, 3, 4, 5, 6]
    assert [each.ordered for each in unit.marks] == [True, True, False, False, False]


@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE"])
def test_a_skipped_number_that_comes_after_all_is_late(strategy: str, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2, strategy=strategy)
    assert result(unit.order(OrderKind.SKIP)) is OrderResult.DONE
    unit.arrive(envelopes(1), envelopes(3))
    assert unit.sequences == [2, 1, 3]
    assert [each.late for each in unit.marks] == [False, True, False]


def test_a_skip_under_strict_sequence_is_of_the_flow_that_waits(envelopes: Envelopes) -> None:
    unit = drive("STRICT_SEQUENCE")
    unit.reincarnates = True
    unit.arrive(envelopes(1, "A"), envelopes(2, "B"), envelopes(3, "A"))
    assert result(unit.order(OrderKind.SKIP)) is OrderResult.DONE
    assert unit.handled == [("A", 1), ("B", 2)]


def test_a_strategy_without_numbers_cannot_skip(envelopes: Envelopes) -> None:
    unit = drive("FULL_PAIN001")
    unit.arrive(envelopes(mds=PAIN_001[:1]))
    outcome = unit.order(OrderKind.SKIP)
    assert outcome is not None
    assert outcome.result is OrderResult.REFUSED_IMPOSSIBLE
    assert "FULL_PAIN001 waits for no number" in outcome.text
    assert result(unit.order(OrderKind.RELEASE)) is OrderResult.DONE


# Extend, retry, dead-letter


def test_extend_sets_another_deadline(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    outcome = unit.order(OrderKind.EXTEND, until=unit.now + HOUR)
    assert outcome is not None
    assert outcome.result is OrderResult.DONE
    assert unit.last is not None
    assert unit.last.waits is not None
    assert unit.last.waits.wakes_at == unit.now + HOUR
    unit.wake(Wake.DEADLINE, after_ms=HOUR - 1)
    assert unit.sequences == []
    unit.wake(Wake.DEADLINE, after_ms=1)
    assert unit.sequences == [2]


@pytest.mark.parametrize("by_ms", [0, -1, LONGEST_HOLD_MS + 1])
def test_a_deadline_in_the_past_or_too_far_is_refused(by_ms: int, envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2)
    outcome = unit.order(OrderKind.EXTEND, until=unit.now + by_ms)
    assert outcome is not None
    assert outcome.result is OrderResult.REFUSED_IMPOSSIBLE
    assert "not within 24 h" in outcome.text


@pytest.mark.parametrize("error", [TransientError("not now"), DependencyUnavailable("limits")])
def test_retry_makes_the_next_attempt_now(error: Exception, envelopes: Envelopes) -> None:
    unit = under_retry(envelopes, error)
    outcome = unit.order(OrderKind.RETRY)
    assert outcome is not None
    assert outcome.text == "tried: nothing is under retry any more"
    assert unit.sequences == [1, 2]


def test_a_retry_that_fails_says_when_the_next_is(envelopes: Envelopes) -> None:
    unit = drive("SEQUENCE")
    head = envelopes(1)
    unit.handler.fail(head, TransientError("not now"), TransientError("still not"))
    unit.arrive(head)
    outcome = unit.order(OrderKind.RETRY)
    assert outcome is not None
    assert outcome.text == f"tried: the next attempt is at {instant_text(unit.now + 6_000)}"


def test_a_unit_that_waits_for_a_number_has_nothing_to_retry(envelopes: Envelopes) -> None:
    assert result(waiting(envelopes, 2).order(OrderKind.RETRY)) is OrderResult.REFUSED_IMPOSSIBLE


def test_a_unit_under_retry_is_not_released_and_is_told_what_to_do(envelopes: Envelopes) -> None:
    outcome = under_retry(envelopes, TransientError("not now")).order(OrderKind.RELEASE)
    assert outcome is not None
    assert outcome.result is OrderResult.REFUSED_IMPOSSIBLE
    assert "order retry, or dead-letter" in outcome.text


def test_a_stashed_envelope_becomes_a_dead_letter_and_its_number_is_missing(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 2, 3)
    outcome = unit.order(OrderKind.DEAD_LETTER, position=1)
    assert result(outcome) is OrderResult.DONE
    (letter,) = unit.dead
    assert (letter.reason, letter.record.origin.offset) == (DeadLetterReason.ORDERED, 1)
    assert letter.error == "ordered by anna: a test"
    assert unit.stored is not None
    assert [each.offset for each in unit.stored.stash] == [2]
    unit.arrive(envelopes(1))
    assert unit.sequences == [1]
    assert result(unit.order(OrderKind.DEAD_LETTER, position=1)) is OrderResult.REFUSED_IMPOSSIBLE


def test_the_data_of_an_ordered_dead_letter_counts_where_its_parts_do(envelopes: Envelopes) -> None:
    unit = drive("FULL_PAIN001")
    unit.reincarnates = True
    unit.arrive(envelopes(mds=PAIN_001[:2]), envelopes(identity="other"))
    assert result(unit.order(OrderKind.DEAD_LETTER, position=1)) is OrderResult.DONE
    unit.arrive(envelopes(mds=PAIN_001[2:], identity="last"))
    assert {each.envelope_id for each, *_ in unit.handler.seen} == {"other", "last"}
    assert all({name for name, _ in data.mds} == set(PAIN_001) for _, data, *_ in unit.handler.seen)


def test_a_dead_letter_that_was_ordered_may_come_again(envelopes: Envelopes) -> None:
    unit = drive("SEQUENCE")
    two = envelopes(2)
    unit.arrive(two)
    unit.order(OrderKind.DEAD_LETTER, position=two.offset)
    unit.arrive(envelopes.again(two), envelopes(1))
    assert unit.sequences == [1, 2]


@pytest.mark.parametrize("error", [TransientError("not now"), DependencyUnavailable("limits")])
def test_the_head_under_retry_becomes_a_dead_letter_and_its_successors_go_on(error: Exception, envelopes: Envelopes) -> None:
    unit = under_retry(envelopes, error)
    assert result(unit.order(OrderKind.DEAD_LETTER, position=1)) is OrderResult.DONE
    assert [each.reason for each in unit.dead] == [DeadLetterReason.ORDERED]
    assert unit.sequences == [2]


# Several at once


def test_an_order_during_a_remainder_is_refused(envelopes: Envelopes) -> None:
    unit = waiting(envelopes, 4, 3, 2)
    unit.budget = 1
    unit.arrive(envelopes(1))
    assert unit.has_remainder
    unit.budget = 0
    assert result(unit.order(OrderKind.RELEASE)) is OrderResult.REFUSED_CHANGED
    unit.budget = 1
    unit.let_out_the_rest()
    assert unit.sequences == [1, 2, 3, 4]
