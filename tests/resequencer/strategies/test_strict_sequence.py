"""STRICT_SEQUENCE: the order within each flow, independent of other flows."""

from itertools import permutations
from random import Random

from harness.driving import Envelopes, drive
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from resequencer.unit import Wake


def per_flow(handled):
    flows: dict[str, list[int]] = {}
    for flow, sequence in handled:
        flows.setdefault(flow, []).append(sequence)
    return flows


def test_none_of_720_permutations_of_two_flows_numbered_separately_breaks_the_order_of_a_flow(envelopes):
    made = [envelopes(number, flow=flow) for flow in "AB" for number in (1, 2, 3)]
    for order in permutations(made):
        unit = drive("STRICT_SEQUENCE")
        unit.arrive(*order)
        assert per_flow(unit.handled) == {"A": [1, 2, 3], "B": [1, 2, 3]}


@settings(max_examples=examples(30))
@given(st.integers(1, 250), st.integers(1, 4), st.integers())
def test_several_flows_of_any_length_come_out_each_in_its_own_order(count, flows, seed):
    made = [(flow, number) for flow in "ABCD"[:flows] for number in range(1, count + 1)]
    Random(seed).shuffle(made)
    unit, envelopes = drive("STRICT_SEQUENCE", stash_limit=2_000), Envelopes()
    unit.arrive_together(*(envelopes(number, flow=flow) for flow, number in made))
    assert per_flow(unit.handled) == {flow: list(range(1, count + 1)) for flow in "ABCD"[:flows]}


def test_on_one_shared_numbering_it_strands_five_of_six(envelopes):
    unit = drive("STRICT_SEQUENCE")
    unit.arrive(*(envelopes(number, flow="ABCDEF"[number - 1]) for number in range(1, 7)))
    assert unit.sequences == [1]


def test_a_flow_that_waits_does_not_hold_another_back(envelopes):
    unit = drive("STRICT_SEQUENCE")
    unit.arrive(envelopes(2, flow="A"), envelopes(1, flow="B"), envelopes(2, flow="B"))
    assert unit.handled == [("B", 1), ("B", 2)]


def test_a_flow_that_waits_does_not_hold_back_what_waited_in_another(envelopes):
    unit = drive("STRICT_SEQUENCE")
    unit.arrive(envelopes(2, flow="A"), envelopes(3, flow="B"), envelopes(1, flow="B"), envelopes(2, flow="B"))
    assert unit.handled == [("B", 1), ("B", 2), ("B", 3)]


def test_the_deadline_gives_up_what_is_missing_and_marks_what_comes_late(envelopes):
    unit = drive("STRICT_SEQUENCE")
    unit.arrive(envelopes(3), envelopes(1, flow="B"))
    unit.wake(Wake.DEADLINE, after_ms=21_000)
    unit.arrive(envelopes(2))
    assert unit.handled == [("B", 1), ("A", 3), ("A", 2)]
    assert [(each.incomplete, each.late) for each in unit.marks] == [(None, False), ("sequence:1", False), (None, True)]
