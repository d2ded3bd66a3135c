"""What is learned from a unit's arrivals."""

from collections.abc import Iterable

import pytest
from harness.driving import PAIN_001, Envelopes, drive
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from notification_service.jobs.lookups.profile_source import Lesson, UnitWaits, lesson_context, rounded_up
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.unit import Wake

Arrival = tuple[int, DataEnvelope]
"""The instant at which an envelope arrives, and the envelope."""


def learned(arrivals: Iterable[Arrival], strategy: str = "SEQUENCE") -> tuple[list[Lesson], list[Lesson]]:
    """Return the learned waits and counts."""
    waits = UnitWaits("uow-1", lesson_context(make_strategy(StrategySettings(strategy))))
    return [lesson for at, envelope in arrivals for lesson in waits.arrive(envelope, at)], sorted(waits.events())


def waits_ms(arrivals: Iterable[Arrival], strategy: str = "SEQUENCE") -> list[int]:
    return [lesson.number for lesson in learned(arrivals, strategy)[0]]


def test_what_comes_in_order_waits_for_nothing(envelopes):
    assert waits_ms([(at, envelopes(number)) for at, number in ((0, 1), (10, 2), (500, 3))]) == []


def test_a_wait_is_from_the_first_that_was_set_aside_to_the_last_that_it_waited_for(envelopes):
    arrivals = [(0, 1), (1_000, 4), (1_300, 5), (1_700, 3), (2_500, 2)]
    assert waits_ms([(at, envelopes(number)) for at, number in arrivals]) == [1_500]


def test_each_wait_of_a_unit_counts(envelopes):
    arrivals = [(0, 2), (700, 1), (1_000, 4), (1_030, 3)]
    assert waits_ms([(at, envelopes(number)) for at, number in arrivals]) == [700, 30]


def test_what_never_came_teaches_nothing(envelopes):
    assert waits_ms([(0, envelopes(2)), (90_000, envelopes(3))]) == []


def test_a_wait_is_of_the_flow_that_waited_and_of_its_entity(envelopes):
    waits, _ = learned([(0, envelopes(2, flow="B")), (40, envelopes(1, flow="A"))])
    assert waits == [Lesson("", "B", 40)]


def test_with_an_entity_it_is_of_that_and_of_any(envelopes):
    of_bank = [(at, replace(envelopes(number), entity="BANK_001")) for at, number in ((0, 2), (40, 1))]
    waits, counts = learned([*of_bank, (50, envelopes(3))])
    assert waits == [Lesson("BANK_001", "A", 40), Lesson("", "A", 40)]
    assert counts == [Lesson("", "A", 3), Lesson("BANK_001", "A", 2)]


@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE", "FULL_PAIN001"])
def test_a_duplicate_neither_counts_nor_ends_a_wait(envelopes, strategy):
    first, third = envelopes(1, mds=PAIN_001[:1]), envelopes(3)
    arrivals = [(0, first), (100, third), (200, envelopes.again(first)), (300, envelopes.again(third))]
    waits, counts = learned(arrivals, strategy)
    assert (waits, counts) == ([], [Lesson("", "A", 2)])


def test_completeness_waits_for_the_missing_part_whatever_the_numbers(envelopes):
    arrivals = [(0, envelopes(1, mds=PAIN_001[:2])), (10, envelopes(2)), (900, envelopes(3, mds=PAIN_001[2:]))]
    assert waits_ms(arrivals, "FULL_PAIN001") == [900]


def test_clocks_that_run_backwards_make_no_wait_negative(envelopes):
    assert waits_ms([(5_000, envelopes(3)), (2_000, envelopes(2)), (1_000, envelopes(1))]) == [0]


def test_what_a_bound_releases_teaches_nothing(envelopes):
    arrivals = [(number, envelopes(number)) for number in range(2, 1_010)]
    assert waits_ms(arrivals) == []


def test_a_unit_of_many_flows_is_counted_for_so_many():
    envelopes = Envelopes()
    _, counts = learned([(0, envelopes(1, flow=f"flow-{number}", mds=PAIN_001)) for number in range(1_000)], "FULL_PAIN001")
    assert len(counts) == 256


@given(st.integers(0, 10**12))
def test_rounding_is_upwards_by_less_than_a_hundredth_part(number):
    rounded = rounded_up(number)
    assert number <= rounded <= number * 1.01
    assert rounded == number or len(str(rounded).rstrip("0")) <= 3


@given(st.permutations(range(1, 9)), st.lists(st.integers(0, 10_000), min_size=8, max_size=8))
def test_a_deadline_of_the_longest_wait_would_have_given_nothing_up(order, pauses):
    """The learned wait is the one that a unit's deadline is compared with."""
    envelopes, at = Envelopes(), 0
    arrivals = []
    for number, pause_ms in zip(order, pauses, strict=True):
        at += pause_ms
        arrivals.append((at, envelopes(number)))
    longest = max(waits_ms(arrivals), default=0)
    unit = drive("SEQUENCE", stash_timeout_ms=longest + 1)
    for at, envelope in arrivals:
        unit.now = at
        unit.wake(Wake.DEADLINE)
        unit.arrive(envelope)
    assert [marks.incomplete for marks in unit.marks] == [None] * 8
