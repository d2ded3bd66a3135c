"""The numbers that identify the lines of records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notification_service.connectors.files.positions import FoundNumbers, find_number, from_ranges, to_ranges
from resequencer.record import OutputNumber, Partition


@pytest.mark.parametrize("topic", ["T", "a-b", "a#1", "-", "ü"])
def test_a_number_is_found_in_the_line_it_was_written_to(topic):
    number = OutputNumber(Partition(topic, 3), 17)
    assert find_number(b'{"value":{"number":"x"},"number":"%b"}' % str(number).encode()) == number


@pytest.mark.parametrize(
    "line",
    [b"", b"{}", b'{"number":5}', b'{"number":"T-0"}', b'{"number":"T#1"}', b'{"number":"\xff#1"}', b'{"number":"T-0#-1"}', b"["],
)
def test_a_line_without_a_number_has_none(line):
    assert find_number(line) is None


@given(st.frozensets(st.integers(1, 60)))
def test_ranges_hold_exactly_their_numbers(numbers):
    assert from_ranges(to_ranges(numbers)) == numbers


@pytest.mark.parametrize("ranges", [[(1, 10**18)], [(5, 4), (1, 10**7)], [(10**18, 1), (1, 10**18)]])
def test_ranges_of_more_numbers_than_are_ever_remembered_are_refused_before_they_fill_the_memory(ranges):
    with pytest.raises(ValueError, match="ranges of more than"):
        from_ranges(ranges)


def test_a_million_numbers_in_a_row_are_one_range():
    assert to_ranges(range(1, 1_000_001)) == [(1, 1_000_000)]


@given(st.permutations(range(1, 41)))
def test_the_highest_numbers_are_kept_in_bounds_in_whatever_order_they_come(order):
    found = FoundNumbers(limit=5)
    for number in order:
        found.add(Partition("T", 0), number)
        assert len(found.by_partition()[Partition("T", 0)]) < 10
    assert found.by_partition()[Partition("T", 0)] >= {36, 37, 38, 39, 40}
