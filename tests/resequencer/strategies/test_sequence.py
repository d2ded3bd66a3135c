"""SEQUENCE: the documented condition, and how our counting differs from the documented one.

The documentation is Icon's of the IPF Notification Service, page "Resequencer" (docs/design.md).
"""

from itertools import permutations
from random import Random

import pytest
from harness.driving import Envelopes, drive
from harness.examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st


def in_flow_order(handled):
    """Return whether the numbers of each flow ascend."""
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


@settings(max_examples=examples(40))
@given(st.integers(2, 1_000), st.integers())
def test_any_permutation_of_up_to_1000_comes_out_in_exact_order(count, seed):
    make, unit = Envelopes(), drive("SEQUENCE", stash_limit=1_000)
    made = [make(number) for number in range(1, count + 1)]
    Random(seed).shuffle(made)
    unit.arrive_together(*made)
    assert unit.sequences == list(range(1, count + 1))


def documented(arrivals):
    """Return what the documented pseudocode handles, in its order: with its condition, its counting, and its stash by number."""
    expected, observed, stash, handled = 1, {}, [], []

    def accepts(flow, number):
        return number <= expected or number <= observed.get(flow, 0) + 1

    for each in arrivals:
        stash.append(each)
        while acceptable := [each for each in sorted(stash, key=lambda one: one[1]) if accepts(*each)]:
            flow, number = acceptable[0]
            stash.remove(acceptable[0])
            handled.append((flow, number))
            expected += 1
            observed[flow] = max(observed.get(flow, 1), number)
    return handled


def overtaken(handled):
    """Return the places of envelopes that follow a later one of their flow."""
    highest: dict[str, int] = {}
    places = []
    for place, (flow, number) in enumerate(handled):
        if number < highest.get(flow, 0):
            places.append(place)
        highest[flow] = max(highest.get(flow, 0), number)
    return places


def handled_of(arrivals):
    make, unit = Envelopes(), drive("SEQUENCE")
    unit.arrive(*(make(number, flow=flow) for flow, number in arrivals))
    return unit.handled


def test_a_number_that_was_overtaken_within_its_flow_is_not_counted_as_documented():
    arrivals = [("A", 1), ("B", 2), ("B", 1), ("B", 4), ("B", 3)]
    assert documented(arrivals) == arrivals
    assert handled_of(arrivals) == [("A", 1), ("B", 2), ("B", 1), ("B", 3), ("B", 4)]


@settings(max_examples=examples(300))
@given(st.permutations([(flow, number) for flow in "ABC" for number in range(1, 5)]), st.integers(1, 12))
def test_until_one_was_overtaken_within_its_flow_everything_is_handled_as_documented(order, count):
    ours, theirs = handled_of(order[:count]), documented(order[:count])
    first = next(iter(overtaken(ours)), len(ours))
    assert ours[: first + 1] == theirs[: first + 1]


@settings(max_examples=examples(300))
@given(st.permutations(range(1, 9)), st.lists(st.sampled_from("AB"), min_size=8, max_size=8))
def test_with_one_shared_numbering_everything_is_handled_as_documented(order, flows):
    arrivals = [(flows[number - 1], number) for number in order]
    assert handled_of(arrivals) == documented(arrivals)


@pytest.mark.slow
def test_of_flows_numbered_separately_none_is_told_in_a_worse_order_than_documented():
    differing = 0
    for seed in range(2_000):
        random = Random(seed)
        arrivals = [(flow, number) for flow in "AB" for number in range(1, random.randint(2, 6) + 1)]
        random.shuffle(arrivals)
        ours, theirs = handled_of(arrivals), documented(arrivals)
        differing += ours != theirs
        assert len(overtaken(ours)) <= len(overtaken(theirs)), arrivals
    assert 0 < differing < 400
