"""A handler that waits: the turn that accepts an envelope ends with a call, and a later turn has its answer."""

import msgspec
import pytest
from harness.driving import PAIN_001, Driven, Envelopes, drive
from msgspec.structs import replace

from resequencer.call import Answer
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import DependencyUnavailable, PermanentError, TransientError
from resequencer.order import OrderKind, OrderResult
from resequencer.storage_port import WaitKind
from resequencer.unit import Wake
from tests.resequencer.turn.ordered_units import result

AWAY, NEVER, GONE = TransientError("away"), PermanentError("never"), DependencyUnavailable("register")


def called(strategy: str = "SEQUENCE", *, budget: int | None = None, **how: int) -> Driven:
    """Return a unit whose handler waits; it goes through its stored form before each turn."""
    unit = drive(strategy, **how)
    unit.waits = unit.reincarnates = True
    if budget is not None:
        unit.budget = budget
    return unit


def kind(unit: Driven) -> WaitKind | None:
    assert unit.last is not None
    return None if unit.last.waits is None else unit.last.waits.kind


def stored_format(unit: Driven) -> int:
    assert unit.stored is not None
    return int(msgspec.msgpack.decode(unit.stored.state)[0])


def test_the_head_is_stored_before_it_is_called_and_its_answer_lets_it_go(envelopes: Envelopes) -> None:
    unit = called()
    turn = unit.arrive(envelopes(1))
    assert (unit.sequences, kind(unit), stored_format(unit)) == ([], WaitKind.CALL, 4)
    assert turn.call is not None
    assert unit.handler.seen == [], "the turn does not call it"
    assert turn.waits is not None
    assert (turn.waits.waits_for, turn.waits.wakes_at) == ("its handler, attempt 1 of 3", unit.now)
    assert unit.stored is not None
    assert [each.offset for each in unit.stored.stash] == [1]
    unit.now += 2_000
    unit.answer()
    assert (unit.sequences, kind(unit), stored_format(unit), unit.stored.stash) == ([1], None, 1, ())


def test_what_comes_meanwhile_waits_and_the_answer_calls_the_next(envelopes: Envelopes) -> None:
    unit = called()
    unit.arrive(*(envelopes(number) for number in (1, 3, 2)))
    assert (unit.sequences, len(unit.unit.stash)) == ([], 2)
    for expected in ([1], [1, 2], [1, 2, 3]):
        unit.answer()
        assert unit.sequences == expected
    assert kind(unit) is None


def test_after_a_takeover_it_is_called_again_with_the_same_marks(envelopes: Envelopes) -> None:
    unit = called()
    unit.arrive(envelopes(1), envelopes(5, mds=("A",)))
    unit.answer()
    turn = unit.expire()
    assert turn.call is not None
    before, unit.call = turn.call, None
    again = unit.wake(Wake.CALL, after_ms=9_000).call
    assert again is not None
    assert (again.marks, again.envelope.offset, again.attempts) == (before.marks, before.envelope.offset, 0)
    assert unit.last is not None
    assert unit.last.waits is not None
    unit.answer()
    assert (unit.sequences, unit.marks[-1].incomplete) == ([1, 5], "sequence:2")


def test_a_forced_head_that_is_called_again_lets_what_came_before_it_go_first_and_lacks_less(envelopes: Envelopes) -> None:
    unit = called()
    unit.arrive(envelopes(3))
    unit.expire()
    unit.arrive(envelopes(1))
    turn = unit.wake(Wake.CALL)
    assert turn.call is not None
    assert turn.call.envelope.sequence == 1
    unit.answer()
    assert unit.call is not None
    assert (unit.call.envelope.sequence, unit.call.marks.incomplete) == (3, "sequence:2")
    unit.answer()
    assert unit.sequences == [1, 3]


def test_the_attempts_of_a_head_count_though_others_are_called_before_it(envelopes: Envelopes) -> None:
    unit, head = called(), envelopes(5)
    unit.handler.fail(head, AWAY, AWAY, AWAY)
    unit.arrive(head)
    unit.expire()
    unit.answer()
    for number in (1, 2):
        unit.arrive(envelopes(number))
        unit.wake(Wake.RETRY, after_ms=30_000)
        unit.answer()
        unit.answer()
    assert [each.error for each in unit.dead] == ["away (attempt 3 of 3)"]
    assert unit.sequences == [1, 2]


@pytest.mark.parametrize("budget", [1, 1 << 40])
def test_a_release_continues_after_each_answer_with_the_same_marks(envelopes: Envelopes, budget: int) -> None:
    unit = called(budget=budget)
    unit.arrive(*(envelopes(number) for number in (9, 8, 5, 4)))
    unit.expire()
    unit.arrive(envelopes(11))
    for _ in range(4):
        unit.answer()
        unit.let_out_the_rest()
    assert unit.sequences == [4, 5, 8, 9]
    assert [marks.incomplete for marks in unit.marks] == ["sequence:1", "sequence:1", "sequence:6", "sequence:6"]
    assert kind(unit) is WaitKind.DEADLINE, "what came after the release is not part of it"


def test_a_release_continues_before_arrivals_that_are_queued(envelopes: Envelopes) -> None:
    """A conflict uses the budget up, so what comes behind it in the same poll is queued."""
    unit, first = called(budget=1), envelopes(4)
    unit.arrive(first, envelopes(9))
    unit.expire()
    unit.arrive_together(envelopes(4, flow="B", identity=first.envelope_id), envelopes(6))
    assert unit.has_remainder
    unit.answer()
    unit.let_out_the_rest()
    while unit.call is not None:
        unit.answer()
        unit.let_out_the_rest()
    assert unit.sequences == [4, 9, 6]
    assert [(marks.incomplete, marks.late) for marks in unit.marks] == [
        ("sequence:1", False),
        ("sequence:5", False),
        (None, True),
    ]


def test_what_a_release_frees_after_more_has_come_is_not_said_to_lack_that(envelopes: Envelopes) -> None:
    unit = called("FULL_PAIN001")
    unit.arrive(*(envelopes(number) for number in (1, 2, 3)))
    unit.expire()
    unit.arrive(envelopes(4, mds=PAIN_001))
    while unit.call is not None:
        unit.answer()
    assert unit.sequences == [1, 2, 3, 4]
    assert [marks.incomplete for marks in unit.marks] == [",".join(PAIN_001), None, None, None]
    assert [len(data.mds) for _, data, *_ in unit.handler.seen] == [0, 3, 3, 3]


def test_an_answer_of_another_call_has_no_effect(envelopes: Envelopes) -> None:
    unit = called()
    unit.handler.fail(head := envelopes(1), AWAY)
    first = unit.arrive(head, envelopes(2)).call or unit.call
    assert first is not None
    others = [replace(first, attempts=1), replace(first, envelope=envelopes(7))]
    for each in others:
        unit.take_up(Answer(each, NEVER))
        assert (unit.left, kind(unit)) == ([], WaitKind.CALL)
    unit.answer()
    assert kind(unit) is WaitKind.RETRY
    unit.take_up(Answer(first, NEVER))
    assert (unit.left, kind(unit)) == ([], WaitKind.RETRY), "it waits for its next attempt"
    unit.wake(Wake.RETRY, after_ms=3_000)
    unit.take_up(Answer(first, NEVER))
    assert unit.left == []
    unit.answer()
    unit.answer()
    assert unit.sequences == [1, 2]
    unit.take_up(Answer(first, NEVER))
    assert (unit.dead, kind(unit)) == ([], None)


def test_attempts_that_fail_count_as_in_the_turn(envelopes: Envelopes) -> None:
    unit, head = called(), envelopes(1)
    unit.handler.fail(head, AWAY, GONE, AWAY, AWAY)
    unit.arrive(head, envelopes(2))
    waited = []
    for _ in range(3):
        unit.answer()
        assert unit.last is not None
        assert unit.last.waits is not None
        waited.append((unit.last.waits.kind, unit.last.waits.wakes_at - unit.now))
        unit.wake(Wake.RETRY, after_ms=waited[-1][1])
    assert waited == [(WaitKind.RETRY, 3_000), (WaitKind.DEPENDENCY, 1_000), (WaitKind.RETRY, 6_000)]
    unit.answer()
    assert [(each.reason, each.error) for each in unit.dead] == [(DeadLetterReason.HANDLER_FAILED, "away (attempt 3 of 3)")]
    unit.answer()
    assert unit.sequences == [2]


def test_a_deadline_rests_while_the_handler_is_called(envelopes: Envelopes) -> None:
    unit = called()
    unit.arrive(envelopes(1), envelopes(3))
    unit.wake(Wake.DEADLINE, after_ms=60_000)
    assert (unit.left, kind(unit)) == ([], WaitKind.CALL)
    unit.answer()
    assert kind(unit) is WaitKind.DEADLINE
    unit.wake(Wake.DEADLINE)
    unit.answer()
    assert unit.sequences == [1, 3]


def test_a_duplicate_of_the_one_that_is_called_is_dropped_and_a_conflict_is_a_dead_letter(envelopes: Envelopes) -> None:
    unit, head = called(), envelopes(1)
    unit.arrive(head)
    assert unit.arrive(envelopes.again(head)).duplicates == 1
    unit.arrive(envelopes(1, flow="B", identity=head.envelope_id))
    assert [each.reason for each in unit.dead] == [DeadLetterReason.CONFLICTING_DUPLICATE]
    unit.answer()
    assert unit.arrive(envelopes.again(head)).duplicates == 1
    assert unit.sequences == [1]


# Orders


@pytest.mark.parametrize("order", [OrderKind.RELEASE, OrderKind.SKIP, OrderKind.EXTEND, OrderKind.RETRY])
def test_what_is_impossible_while_the_handler_is_called_says_for_how_long(envelopes: Envelopes, order: OrderKind) -> None:
    unit = called()
    unit.arrive(envelopes(1), envelopes(3))
    unit.now += 2_100
    outcome = unit.order(order, until=unit.now + 5_000)
    assert outcome is not None
    text = "its handler has been called for 2.1 s; wait for its answer, or order dead-letter with its offset"
    assert (outcome.result, outcome.text) == (OrderResult.REFUSED_IMPOSSIBLE, text)
    unit.answer()
    assert unit.sequences == [1]


def test_a_hold_cancels_the_call_and_it_is_made_again_when_the_hold_ends(envelopes: Envelopes) -> None:
    unit = called()
    call = unit.arrive(envelopes(1)).call
    assert call is not None
    assert unit.order(OrderKind.HOLD, for_ms=60_000) is None
    assert unit.last is not None
    assert (unit.last.called, kind(unit)) == (None, WaitKind.HELD)
    unit.take_up(Answer(call, NEVER))
    assert unit.wake(Wake.CALL, after_ms=30_000).call is None
    assert unit.left == []
    assert result(unit.order(OrderKind.RESUME)) is OrderResult.DONE
    assert unit.last.waits is not None
    assert (kind(unit), unit.last.waits.wakes_at) == (WaitKind.CALL, unit.now)
    assert unit.last.called is not None
    assert unit.wake(Wake.CALL).call is not None
    unit.answer()
    assert unit.sequences == [1]


def test_the_one_that_is_called_can_be_dead_lettered_and_its_answer_counts_no_more(envelopes: Envelopes) -> None:
    unit = called()
    first = unit.arrive(envelopes(1)).call
    assert first is not None
    unit.arrive(envelopes(2))
    outcome = unit.order(OrderKind.DEAD_LETTER, position=first.envelope.offset)
    assert outcome is not None
    assert (outcome.result, outcome.text) == (OrderResult.DONE, "the envelope whose handler was called is a dead letter")
    assert unit.call is not None
    assert unit.call.envelope.sequence == 2
    unit.take_up(Answer(first, NEVER))
    unit.answer()
    assert ([each.reason for each in unit.dead], unit.sequences) == ([DeadLetterReason.ORDERED], [2])


# Bounds


def test_a_stash_behind_a_call_may_have_four_times_its_bound_and_then_the_head_is_a_dead_letter(envelopes: Envelopes) -> None:
    unit = called(stash_limit=2)
    unit.arrive(*(envelopes(number) for number in range(1, 9)))
    assert (unit.left, len(unit.unit.stash)) == ([], 7)
    unit.arrive(envelopes(9))
    (dead,) = unit.dead
    assert dead.error == "its handler has not answered, and the unit's stash is more than four times its limit (stash-limit)"
    assert unit.call is not None
    assert unit.call.envelope.sequence == 2
    for _ in range(8):
        unit.answer()
    assert unit.sequences == [*range(2, 10)]


def test_at_the_bound_a_head_that_waits_for_its_next_attempt_is_called_before_it_is_given_up(envelopes: Envelopes) -> None:
    """The stash was so full because its server was away."""
    unit, head = called(stash_limit=1), envelopes(1)
    unit.handler.fail(head, GONE, AWAY)
    unit.arrive(head)
    unit.answer()
    unit.arrive(*(envelopes(number) for number in (2, 3, 4)))
    unit.wake(Wake.RETRY, after_ms=1_000)
    unit.answer()
    assert kind(unit) is WaitKind.RETRY
    unit.arrive(envelopes(5))
    assert (unit.dead, kind(unit)) == ([], WaitKind.CALL)
    while unit.call is not None:
        unit.answer()
    assert unit.sequences == [1, 2, 3, 4, 5]


def test_the_bound_of_a_worker_gives_no_call_up(envelopes: Envelopes) -> None:
    unit = called()
    unit.arrive(envelopes(1), envelopes(5))
    unit.wake(Wake.BOUND)
    assert (unit.left, kind(unit)) == ([], WaitKind.CALL)


def test_the_answer_of_a_turn_whose_budget_is_used_up_counts_all_the_same(envelopes: Envelopes) -> None:
    unit = called()
    unit.arrive(envelopes(1))
    unit.budget = 0
    unit.answer()
    assert unit.sequences == [1]
