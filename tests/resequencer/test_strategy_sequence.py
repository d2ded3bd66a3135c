"""SEQUENCE: the seed's condition, run as it is documented."""

from itertools import permutations
from random import Random

import pytest
from driving import Envelopes, drive
from hypothesis import given, settings
from hypothesis import strategies as st


def in_flow_order(handled):
    """Whether each flow's numbers ascend."""
    last: dict[str, int] = {}
    for flow, sequence in handled:
        if sequence < last.get(flow, 0):
            return False
        last[flow] = sequence
    return True


def interleavings(left, right):
    if not left or not right:
        yield (*left, *right)
        return
    for rest in interleavings(left[1:], right):
        yield (left[0], *rest)
    for rest in interleavings(left, right[1:]):
        yield (right[0], *rest)


@pytest.mark.parametrize("count", range(1, 7))
def test_every_permutation_of_one_shared_numbering_comes_out_in_exact_order(envelopes, count):
    made = [envelopes(number, flow="AB"[number % 2]) for number in range(1, count + 1)]
    for order in permutations(made):
        unit = drive("SEQUENCE")
        unit.arrive(*order)
        assert unit.sequences == list(range(1, count + 1))


def test_684_of_720_permutations_of_two_flows_numbered_separately_break_the_order_of_a_flow(envelopes):
    made = [envelopes(number, flow=flow) for flow in "AB" for number in (1, 2, 3)]
    broken = 0
    for order in permutations(made):
        unit = drive("SEQUENCE")
        unit.arrive(*order)
        assert len(unit.handled) == 6
        broken += not in_flow_order(unit.handled)
    assert broken == 684


def test_none_of_the_20_interleavings_that_keep_each_flows_own_order_breaks_it(envelopes):
    left, right = ([envelopes(number, flow=flow) for number in (1, 2, 3)] for flow in "AB")
    orders = list(interleavings(left, right))
    assert len(orders) == 20
    for order in orders:
        unit = drive("SEQUENCE")
        unit.arrive(*order)
        assert in_flow_order(unit.handled)


@settings(max_examples=40)
@given(st.integers(2, 1_000), st.integers())
def test_any_permutation_of_up_to_1000_comes_out_in_exact_order(count, seed):
    make, unit = Envelopes(), drive("SEQUENCE", stash_limit=1_000)
    made = [make(number) for number in range(1, count + 1)]
    Random(seed).shuffle(made)
    unit.arrive_together(*made)
    assert unit.sequences == list(range(1, count + 1))
