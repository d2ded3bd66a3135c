"""A release whose head fails for a while: each envelope is marked with what is missing at the time of its own handling."""

import pytest
from harness.driving import PAIN_001, drive

from resequencer.errors import TransientError
from resequencer.unit import Wake

AWAY = TransientError("the mapper is away")


@pytest.fixture(params=[False, True], ids=["one incarnation", "a new incarnation at every turn"])
def started(request):
    def start(strategy):
        unit = drive(strategy)
        unit.reincarnates = request.param
        return unit

    return start


@pytest.fixture
def sequence(started):
    return started("SEQUENCE")


@pytest.fixture
def full(started):
    return started("FULL_PAIN001")


def notified(unit):
    """Return the sequence and the mark of each notification, in order."""
    last = {envelope.envelope_id: (envelope.sequence, marks) for envelope, _, marks, _ in unit.handler.seen}
    return [(last[each.notification_id][0], last[each.notification_id][1].incomplete) for each in unit.left]


def parts_of(unit, envelope):
    """Return the parts of the payment that the envelope's last attempt had."""
    data = [data for each, data, _, _ in unit.handler.seen if each.envelope_id == envelope.envelope_id][-1]
    return [name for name, _ in data.mds]


def test_what_comes_while_the_forced_one_is_tried_again_misses_nothing(sequence, envelopes):
    second = envelopes(2)
    sequence.handler.fail(second, AWAY)
    sequence.arrive(second)
    sequence.expire()
    sequence.arrive(envelopes(3), envelopes(4), envelopes(5))
    sequence.wake(Wake.RETRY, after_ms=3_000)
    assert notified(sequence) == [(2, "sequence:1"), (3, None), (4, None), (5, None)]


def test_what_was_released_with_it_says_so_and_what_came_in_between_does_not(sequence, envelopes):
    second = envelopes(2)
    sequence.handler.fail(second, AWAY, AWAY)
    sequence.arrive(second, envelopes(3), envelopes(6))
    sequence.expire()
    sequence.arrive(envelopes(4), envelopes(5))
    sequence.wake(Wake.RETRY, after_ms=3_000)
    sequence.wake(Wake.RETRY, after_ms=6_000)
    assert notified(sequence) == [(2, "sequence:1"), (3, "sequence:1"), (4, None), (5, None), (6, None)]


def test_one_that_followed_the_forced_one_and_failed_for_a_while_keeps_its_mark(sequence, envelopes):
    third = envelopes(3)
    sequence.handler.fail(third, AWAY)
    sequence.arrive(envelopes(2), third)
    sequence.expire()
    sequence.arrive(envelopes(4))
    sequence.wake(Wake.RETRY, after_ms=3_000)
    assert notified(sequence) == [(2, "sequence:1"), (3, "sequence:1"), (4, None)]


@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE"])
def test_what_was_missing_and_comes_while_the_forced_one_is_tried_again_goes_before_it(started, envelopes, strategy):
    unit, second = started(strategy), envelopes(2)
    unit.handler.fail(second, AWAY)
    unit.arrive(second)
    unit.expire()
    unit.arrive(envelopes(3), envelopes(1))
    unit.wake(Wake.RETRY, after_ms=3_000)
    assert notified(unit) == [(1, None), (2, None), (3, None)]
    assert not any(marks.late for marks in unit.marks)


def test_a_lower_one_that_comes_meanwhile_is_forced_first(sequence, envelopes):
    third = envelopes(3)
    sequence.handler.fail(third, AWAY)
    sequence.arrive(third)
    sequence.expire()
    sequence.arrive(envelopes(2))
    sequence.wake(Wake.RETRY, after_ms=3_000)
    assert notified(sequence) == [(2, "sequence:1"), (3, "sequence:1")]
    sequence.arrive(envelopes(1))
    assert sequence.marks[-1].late


def test_another_flow_keeps_waiting_for_its_own_deadline(started, envelopes):
    unit, second = started("STRICT_SEQUENCE"), envelopes(2, flow="B")
    unit.handler.fail(second, AWAY)
    unit.arrive(second)
    unit.expire()
    unit.arrive(envelopes(2, flow="A"))
    unit.wake(Wake.RETRY, after_ms=3_000)
    assert unit.handled == [("B", 2)]
    unit.arrive(envelopes(1, flow="A"))
    assert unit.handled == [("B", 2), ("A", 1), ("A", 2)]


def test_its_attempts_are_counted_on_whatever_went_before_it(sequence, envelopes):
    third = envelopes(3)
    sequence.handler.fail(third, AWAY, AWAY, AWAY)
    sequence.arrive(third)
    sequence.expire()
    sequence.arrive(envelopes(2))
    sequence.wake(Wake.RETRY, after_ms=3_000)
    sequence.wake(Wake.RETRY, after_ms=6_000)
    assert [each.error for each in sequence.dead] == ["the mapper is away (attempt 3 of 3)"]
    assert sequence.sequences == [2]


def test_if_what_goes_before_it_fails_for_a_while_too_it_waits_behind_that(sequence, envelopes):
    second, first = envelopes(2), envelopes(1)
    sequence.handler.fail(second, AWAY)
    sequence.handler.fail(first, AWAY)
    sequence.arrive(second)
    sequence.expire()
    sequence.arrive(first)
    assert sequence.wake(Wake.RETRY, after_ms=3_000).waits.stashed == 2
    assert sequence.wake(Wake.RETRY, after_ms=3_000).waits is None
    assert notified(sequence) == [(1, None), (2, None)]


def test_what_came_meanwhile_completes_the_one_that_was_released_without_it(full, envelopes):
    bare, whole = envelopes(1), envelopes(2, mds=PAIN_001)
    full.handler.fail(bare, AWAY)
    full.arrive(bare)
    full.expire()
    full.arrive(whole)
    full.wake(Wake.RETRY, after_ms=3_000)
    assert notified(full) == [(1, None), (2, None)]
    assert parts_of(full, bare) == parts_of(full, whole) == [*PAIN_001]


def test_what_is_still_missing_is_all_that_it_says_and_it_takes_what_has_come(full, envelopes):
    bare, first, second = envelopes(1), envelopes(2, mds=PAIN_001[:1]), envelopes(3, mds=PAIN_001[1:])
    full.handler.fail(bare, AWAY)
    full.arrive(bare)
    full.expire()
    full.arrive(first)
    full.wake(Wake.RETRY, after_ms=3_000)
    assert notified(full) == [(1, "PAIN_001_PAYMENT_INSTRUCTION,PAIN_001_PAYMENT_TRANSACTION")]
    assert parts_of(full, bare) == ["PAIN_001"]
    full.arrive(second)
    assert notified(full)[1:] == [(3, None), (2, None)]


def test_the_rest_of_a_release_without_parts_follows_with_its_own_mark(full, envelopes):
    bare = envelopes(1)
    full.handler.fail(bare, AWAY)
    full.arrive(bare, envelopes(2))
    full.expire()
    full.arrive(envelopes(3, mds=PAIN_001[:2]))
    full.wake(Wake.RETRY, after_ms=3_000)
    full.wake(Wake.DEADLINE)
    assert notified(full) == [(number, "PAIN_001_PAYMENT_TRANSACTION") for number in (1, 2, 3)]
