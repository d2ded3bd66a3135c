"""The numbers that identify output lines: `"number": "<topic>-<partition>#<n>"`."""

import heapq
from collections.abc import Collection

import msgspec

from resequencer.record import OutputNumber, Partition

MOST_NUMBERS = 2**18
"""How many numbers are remembered per partition. The highest are kept, as only output that is still pending is looked up."""


class _Numbered(msgspec.Struct, gc=False):
    number: str


_DECODER = msgspec.json.Decoder(_Numbered)


def find_number(line: bytes) -> OutputNumber | None:
    """Return the number of an output line; None for a line without a number."""
    try:
        return OutputNumber.find(_DECODER.decode(line).number)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


class FoundNumbers:
    """Collects numbers by partition. Each partition keeps at least its highest `most` numbers, and at most twice as many."""

    def __init__(self, most: int = MOST_NUMBERS) -> None:
        self._most = most
        self._numbers: dict[Partition, set[int]] = {}

    def add(self, partition: Partition, number: int) -> None:
        numbers = self._numbers.setdefault(partition, set())
        numbers.add(number)
        if len(numbers) >= 2 * self._most:
            self._numbers[partition] = set(heapq.nlargest(self._most, numbers))

    def by_partition(self) -> dict[Partition, frozenset[int]]:
        return {partition: frozenset(numbers) for partition, numbers in self._numbers.items()}


def to_ranges(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Return the numbers as ascending ranges, both ends included."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def from_ranges(ranges: Collection[tuple[int, int]]) -> frozenset[int]:
    """Expand the ranges. Raises ValueError for more numbers than the service ever writes: the file is damaged or was edited."""
    if sum(max(0, last - first + 1) for first, last in ranges) > 2 * MOST_NUMBERS:
        raise ValueError(f"ranges of more than {2 * MOST_NUMBERS} numbers")
    return frozenset(number for first, last in ranges for number in range(first, last + 1))
