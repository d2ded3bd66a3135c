"""A handler that fails: attempts and back-off; only its own unit waits."""

import pytest
from harness.driving import drive

from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import EndedItsWorker, PermanentError, TransientError
from resequencer.storage_port import WaitKind
from resequencer.unit import Wake

AWAY = TransientError("the mapper is away")


@pytest.fixture(params=[False, True], ids=["one incarnation", "a new incarnation at every turn"])
def unit(request):
    driven = drive("SEQUENCE")
    driven.reincarnates = request.param
    return driven


def test_sends_follow_each_other_after_3_and_6_seconds_and_the_third_failure_is_the_last(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, AWAY, AWAY, AWAY)
    turn = unit.arrive(first)
    assert turn.waits.wakes_at == unit.now + 3_000
    turn = unit.wake(Wake.RETRY, after_ms=3_000)
    assert turn.waits.wakes_at == unit.now + 6_000
    turn = unit.wake(Wake.RETRY, after_ms=6_000)
    assert turn.waits is None
    assert [each.reason for each in unit.dead] == [DeadLetterReason.HANDLER_FAILED]
    assert unit.dead[0].error == "the mapper is away (attempt 3 of 3)"
    assert len(unit.handler.seen) == 3


def test_the_unit_goes_on_after_a_dead_letter(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, PermanentError("never"))
    unit.arrive(first, envelopes(2))
    assert unit.sequences == [2]
    assert len(unit.dead) == 1


def test_only_what_has_failed_waits_until_it_succeeds_and_the_rest_keeps_its_order(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, AWAY)
    unit.arrive(first, envelopes(2), envelopes(3))
    assert unit.sequences == []
    unit.wake(Wake.RETRY, after_ms=3_000)
    assert unit.sequences == [1, 2, 3]


def test_an_early_or_doubled_wake_does_nothing(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, AWAY)
    unit.arrive(first)
    assert unit.wake(Wake.RETRY, after_ms=2_999).change is None
    unit.wake(Wake.RETRY, after_ms=1)
    assert unit.wake(Wake.RETRY).change is None
    assert unit.sequences == [1]


def test_the_deadline_rests_while_the_head_is_under_retry(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, AWAY, AWAY)
    unit.arrive(first, envelopes(3))
    unit.now += 21_000
    assert unit.wake(Wake.DEADLINE).releases == []
    unit.wake(Wake.RETRY)
    assert unit.last.waits.kind is WaitKind.RETRY


def test_a_duplicate_of_the_one_under_retry_is_dropped(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, AWAY)
    unit.arrive(first)
    assert unit.arrive(envelopes.again(first)).duplicates == 1


def test_a_dead_lettered_envelope_sent_again_is_no_duplicate(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, PermanentError("not today"))
    unit.arrive(first, envelopes.again(first))
    assert unit.sequences == [1]


def test_a_forced_one_that_fails_for_a_while_keeps_its_mark(unit, envelopes):
    second = envelopes(2)
    unit.handler.fail(second, AWAY)
    unit.arrive(second, envelopes(5))
    unit.expire()
    unit.wake(Wake.RETRY, after_ms=3_000)
    unit.wake(Wake.DEADLINE)
    assert unit.sequences == [2, 5]
    assert [each.incomplete for each in unit.marks] == ["sequence:1", "sequence:1", "sequence:3"]


def test_what_follows_a_forced_one_that_was_tried_again_is_marked_like_it(unit, envelopes):
    second = envelopes(2)
    unit.handler.fail(second, AWAY)
    unit.arrive(second, envelopes(3))
    unit.expire()
    unit.wake(Wake.RETRY, after_ms=3_000)
    assert unit.sequences == [2, 3]
    assert [each.incomplete for each in unit.marks] == ["sequence:1", "sequence:1", "sequence:1"]


def test_jitter_moves_the_next_attempt_within_its_bounds(envelopes):
    class Upmost:
        def uniform(self, a, b):
            return b

    unit, first = drive("SEQUENCE"), envelopes(1)
    unit.chance = Upmost()
    unit.handler.fail(first, AWAY)
    assert unit.arrive(first).waits.wakes_at == unit.now + 3_600


def test_the_data_of_a_failed_attempt_counts_once_it_is_given_up(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1, mds=["PAIN_001"])
    unit.handler.fail(first, PermanentError("never"))
    unit.arrive(first, envelopes(2))
    _, data, _, _ = unit.handler.seen[-1]
    assert data.find_mds("PAIN_001") == b'{"at":0}'


def test_an_attempt_that_will_be_repeated_changes_no_data(envelopes):
    unit, first = drive("SEQUENCE"), envelopes(1, mds=["PAIN_001"])
    unit.handler.fail(first, AWAY)
    unit.arrive(first)
    assert unit.unit.data.mds == ()


@pytest.mark.parametrize("forced", [False, True], ids=["in its turn", "at the deadline"])
def test_an_envelope_that_ended_its_workers_leaves_with_that_reason_and_its_unit_goes_on(unit, envelopes, forced):
    first, second = envelopes(1, mds=["PAIN_001"]), envelopes(2)
    killer = second if forced else first
    unit.handler.fail(killer, EndedItsWorker("its handling ended 3 workers"))
    unit.arrive(*([second] if forced else [first, second]))
    if forced:
        unit.expire()
    unit.arrive(envelopes(3))
    (letter,) = unit.dead
    assert (letter.reason, letter.record) == (DeadLetterReason.ENDED_ITS_WORKER, killer.record)
    assert unit.sequences == ([3] if forced else [2, 3])
    assert dict(unit.handler.seen[-1][1].mds) == ({} if forced else {"PAIN_001": first.mds_objects[0].body})


def test_a_second_attempt_can_end_as_one_that_ended_its_workers(unit, envelopes):
    first = envelopes(1)
    unit.handler.fail(first, AWAY, EndedItsWorker("its handling ended 3 workers"))
    unit.arrive(first, envelopes(2))
    unit.wake(Wake.RETRY, after_ms=3_000)
    assert [each.reason for each in unit.dead] == [DeadLetterReason.ENDED_ITS_WORKER]
    assert unit.sequences == [2]
