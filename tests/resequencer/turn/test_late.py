"""The mark `late`: a later envelope of the flow (SEQUENCE: of the unit) was handled before. Dead letters do not count."""

import msgspec
import pytest
from harness.driving import Envelopes, drive
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from resequencer.errors import PermanentError
from resequencer.strategies.sequence import Sequence, StrictSequence
from resequencer.unit import Wake

NO = PermanentError("the mapping is wrong")
both = pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE"])


def fail_once(unit, *envelopes):
    for each in envelopes:
        unit.handler.fail(each, NO)


@both
def test_dead_letters_that_are_requeued_are_in_time_if_nothing_of_their_unit_was_handled(envelopes, strategy):
    unit, made = drive(strategy), [envelopes(number) for number in (1, 2, 3)]
    unit.reincarnates = True
    fail_once(unit, *made)
    unit.arrive(*made)
    assert len(unit.dead) == 3
    unit.arrive(*(envelopes.again(each) for each in made))
    assert unit.sequences == [1, 2, 3]
    assert not any(each.late for each in unit.marks)


@both
def test_a_dead_letter_does_not_make_an_earlier_one_late(envelopes, strategy):
    unit, made = drive(strategy), [envelopes(number) for number in (1, 2, 3)]
    fail_once(unit, *made[1:])
    unit.arrive(*made, *(envelopes.again(each) for each in made[1:]))
    assert unit.sequences == [1, 2, 3]
    assert not any(each.late for each in unit.marks)


@both
def test_a_requeued_dead_letter_is_late_once_a_later_one_was_handled(envelopes, strategy):
    unit, made = drive(strategy), [envelopes(number) for number in (1, 2, 3)]
    fail_once(unit, *made[:2])
    unit.arrive(*made, envelopes.again(made[1]), envelopes.again(made[0]))
    assert unit.sequences == [3, 2, 1]
    assert [each.late for each in unit.marks[2:]] == [False, True, True]


@both
def test_of_two_requeued_in_the_wrong_order_the_second_is_late(envelopes, strategy):
    unit, made = drive(strategy), [envelopes(number) for number in (1, 2)]
    fail_once(unit, *made)
    unit.arrive(*made, envelopes.again(made[1]), envelopes.again(made[0]))
    assert unit.sequences == [2, 1]
    assert [each.late for each in unit.marks[2:]] == [False, True]


@both
def test_one_that_a_deadline_forced_into_the_dead_letters_makes_nothing_late(envelopes, strategy):
    unit, second = drive(strategy), envelopes(2)
    fail_once(unit, second)
    unit.arrive(second)
    unit.expire()
    unit.arrive(envelopes(1), envelopes.again(second))
    assert unit.sequences == [1, 2]
    assert not any(each.late for each in unit.marks)


@both
def test_a_dead_letter_that_dies_again_leaves_everything_as_it_was(envelopes, strategy):
    unit, second = drive(strategy), envelopes(2)
    unit.handler.fail(second, NO, NO)
    unit.arrive(envelopes(1), second, envelopes.again(second), envelopes.again(second))
    assert unit.sequences == [1, 2]
    assert not unit.marks[-1].late


@both
def test_a_late_one_that_dies_does_not_hide_what_was_handled_before_it(envelopes, strategy):
    unit, first = drive(strategy), envelopes(1)
    unit.handler.fail(first, NO)
    unit.arrive(envelopes(2))
    unit.expire()
    unit.arrive(first, envelopes.again(first))
    assert unit.sequences == [2, 1]
    assert unit.marks[-1].late


@both
def test_a_number_that_comes_again_after_a_later_one_of_its_flow_is_late(envelopes, strategy):
    unit = drive(strategy)
    unit.arrive(envelopes(1), envelopes(2), envelopes(3), envelopes(2))
    assert [each.late for each in unit.marks] == [False, False, False, True]


def test_what_another_flow_handled_counts_for_a_unit_of_one_numbering_only(envelopes):
    for strategy, is_late in (("SEQUENCE", True), ("STRICT_SEQUENCE", False)):
        unit, first = drive(strategy), envelopes(1, flow="B")
        fail_once(unit, first)
        unit.arrive(first, envelopes(2, flow="A"), envelopes(3, flow="A"))
        if unit.last.waits is not None:
            unit.expire()
        unit.arrive(envelopes.again(first))
        assert unit.marks[-1].late is is_late, strategy


def test_flows_that_count_by_themselves_are_in_time_beside_each_other(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(*(envelopes(number, flow="A") for number in (1, 2, 3)), *(envelopes(number, flow="B") for number in (1, 2)))
    assert not any(each.late for each in unit.marks)


def test_a_flow_that_counts_by_itself_and_lost_its_order_on_the_way_says_so(envelopes):
    """The global condition accepts A3, as documented; A1, which is handled after it, is marked late."""
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1, flow="B"), envelopes(2, flow="B"), envelopes(3, flow="A"), envelopes(1, flow="A"))
    assert unit.handled == [("B", 1), ("B", 2), ("A", 3), ("A", 1)]
    assert [each.late for each in unit.marks] == [False, False, False, True]


def _courses():
    """Envelopes as (flow, number). Some fail permanently when they first come, and are sent again at the end."""
    pairs = st.tuples(st.sampled_from("AB"), st.integers(1, 14))
    numbered = st.lists(pairs, min_size=1, max_size=12, unique_by=lambda each: each[1])
    return numbered.flatmap(
        lambda made: st.tuples(st.permutations(made), st.sets(st.sampled_from(made)), st.permutations(made), st.booleans())
    )


@both
@settings(max_examples=examples(300))
@given(_courses())
def test_late_is_exactly_what_follows_a_later_one_that_was_handled(strategy, course):
    arrivals, poison, again, reincarnates = course
    unit, envelopes = drive(strategy), Envelopes()
    unit.reincarnates = reincarnates
    made = {each: envelopes(each[1], flow=each[0]) for each in arrivals}
    fail_once(unit, *(made[each] for each in poison))
    for each in (*(made[each] for each in arrivals), None, *(envelopes.again(made[each]) for each in again if each in poison)):
        if each is not None:
            unit.arrive(each)
        elif unit.last.waits is not None:
            unit.expire()
    if unit.last.waits is not None:
        unit.expire()
    assert sorted(unit.handled) == sorted(arrivals), "everything was handled in the end"
    before: list[tuple[str, int]] = []
    for (flow, number), is_late in zip(unit.handled, _late_of_handled(unit), strict=True):
        later = [each for each in before if each[1] > number and (strategy == "SEQUENCE" or each[0] == flow)]
        assert is_late is bool(later), (unit.handled, flow, number)
        before.append((flow, number))


def _late_of_handled(unit):
    """Return the mark `late` of each handled envelope, in order; envelopes that failed permanently came twice."""
    last = {envelope.envelope_id: marks.late for envelope, _, marks, _ in unit.handler.seen}
    return [last[each.notification_id] for each in unit.left if hasattr(each, "notification_id")]


@pytest.mark.parametrize(
    ("strategy", "stored"),
    [(Sequence(), (5, (("A", 4),), ((1, 2),))), (StrictSequence(), ((("A", 4),),))],
    ids=lambda each: getattr(each, "name", "stored"),
)
def test_a_state_that_was_stored_before_dead_letters_were_told_apart_still_opens(strategy, stored, envelopes):
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(stored), type=strategy.state_type)
    assert strategy.accepts(state, envelopes(5))
    assert not strategy.accepts(state, envelopes(6))
    assert strategy.is_late(state, envelopes(1))
    assert not strategy.is_late(state, envelopes(5))


def test_what_is_late_after_a_new_incarnation_is_what_was_late_before(envelopes):
    unit, third = drive("STRICT_SEQUENCE"), envelopes(3)
    unit.reincarnates = True
    fail_once(unit, third)
    unit.arrive(third)
    unit.expire()
    unit.arrive(envelopes(2), envelopes(1), envelopes.again(third))
    assert unit.sequences == [2, 1, 3]
    assert [each.late for each in unit.marks[1:]] == [False, True, False]
    assert unit.wake(Wake.DEADLINE).change is None
