"""The numbers of a unit begin with 1, with 0, or with that of the first event that comes."""

from itertools import permutations

import pytest
from harness.driving import Envelopes, drive
from msgspec.structs import replace

from resequencer.unit import Wake

STRATEGIES = ("SEQUENCE", "STRICT_SEQUENCE")


def numbered(envelopes: Envelopes, number: int, flow: str = "A"):
    """Return an envelope with any number: IPF's begin with 1."""
    return replace(envelopes(number or 1, flow=flow, identity=f"{flow}-{number}"), sequence=number)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_permutation_from_zero_comes_out_in_order(envelopes, strategy):
    made = [numbered(envelopes, number) for number in range(5)]
    for order in permutations(made):
        unit = drive(strategy, first_sequence=0)
        unit.arrive(*order)
        assert unit.sequences == [0, 1, 2, 3, 4]
        assert not any(marks.late or marks.incomplete for marks in unit.marks)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_with_zero_as_the_first_one_waits_for_it(envelopes, strategy):
    unit = drive(strategy, first_sequence=0)
    unit.arrive(numbered(envelopes, 1))
    assert unit.handled == []
    assert unit.last.waits.waits_for == "sequence:0"
    unit.expire()
    assert [marks.incomplete for marks in unit.marks] == ["sequence:0"]
    unit.arrive(numbered(envelopes, 0))
    assert unit.sequences == [1, 0]
    assert [marks.late for marks in unit.marks] == [False, True]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_comes_first_begins_and_the_next_is_awaited(envelopes, strategy):
    unit = drive(strategy, first_sequence=None)
    unit.arrive(numbered(envelopes, 41), numbered(envelopes, 43))
    assert unit.sequences == [41]
    assert unit.last.waits.waits_for == "sequence:42"
    unit.arrive(numbered(envelopes, 42))
    assert unit.sequences == [41, 42, 43]
    assert not any(marks.late or marks.incomplete for marks in unit.marks)
    unit.arrive(numbered(envelopes, 40))
    assert unit.sequences[-1] == 40
    assert unit.marks[-1].late, "it was given up when a later one began"


def test_each_flow_of_its_own_numbering_begins_with_what_comes_first(envelopes):
    unit = drive("STRICT_SEQUENCE", first_sequence=None)
    unit.arrive(numbered(envelopes, 7), numbered(envelopes, 900, "B"), numbered(envelopes, 902, "B"), numbered(envelopes, 8))
    assert unit.handled == [("A", 7), ("B", 900), ("A", 8)]
    unit.arrive(numbered(envelopes, 901, "B"))
    assert unit.handled[-2:] == [("B", 901), ("B", 902)]


def test_flows_of_one_numbering_are_one_order_whatever_comes_first(envelopes):
    made = [numbered(envelopes, number, "AB"[number % 2]) for number in range(10, 15)]
    for order in permutations(made[1:]):
        unit = drive("SEQUENCE", first_sequence=None)
        unit.arrive(made[0], *order)
        assert unit.sequences == [10, 11, 12, 13, 14]
        assert not any(marks.late or marks.incomplete for marks in unit.marks)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("first", "name"), [(1, ""), (0, "[first-sequence=0]"), (None, "[first-sequence=any]")])
def test_the_first_number_is_part_of_the_name_that_states_carry(strategy, first, name):
    assert drive(strategy, first_sequence=first).strategy.name == f"{strategy}{name}"


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("first", [0, None])
def test_steps_answer_as_the_single_questions_do(envelopes, strategy, first):
    """Of every order of some numbers, each question that `step` answers at once."""
    made = [numbered(envelopes, number) for number in (0, 1, 3, 4)]
    for order in permutations(made):
        chosen = drive(strategy, first_sequence=first).strategy
        state = chosen.initial()
        for each in order:
            accepts = chosen.accepts(state, each)
            answer = chosen.step(state, each)
            assert (answer is not None) == accepts
            if accepts:
                assert answer == (chosen.handled(state, each), chosen.is_late(state, each))
                state = answer[0]


def test_complete_waits_for_the_names_of_parts(envelopes):
    unit = drive("COMPLETE", required_parts=("created", "paid"))
    assert unit.strategy.name == "COMPLETE[created,paid]"
    unit.arrive(replace(envelopes(2), parts=("paid",)), replace(envelopes(3), parts=("other",)))
    assert unit.handled == []
    assert unit.last.waits.waits_for == "created"
    unit.arrive(replace(envelopes(1), parts=("created",)))
    assert unit.sequences == [1, 2, 3], "the one that completes them is first"
    unit.arrive(replace(envelopes(4), parts=()))
    assert unit.sequences == [1, 2, 3, 4]
    again = drive("COMPLETE", required_parts=("created", "paid"))
    again.arrive(replace(envelopes(2), parts=("paid",)))
    again.wake(Wake.DEADLINE, after_ms=60_000)
    assert [marks.incomplete for marks in again.marks] == ["created"]
