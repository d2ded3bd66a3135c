"""The numbers that output lines are known by: `"number": "<topic>-<partition>#<n>"`."""

import heapq
from collections.abc import Collection

import msgspec

from domain.record import Partition

MOST_NUMBERS = 2**18
"""How many numbers of a partition are remembered: the highest, for only what is still pending is ever asked for."""


class _Numbered(msgspec.Struct, gc=False):
    number: str


_DECODER = msgspec.json.Decoder(_Numbered)


def format_number(partition: Partition, number: int) -> str:
    """As the field says it."""
    return f"{partition}#{number}"


def find_number(line: bytes) -> tuple[Partition, int] | None:
    """The partition and number of an output line, None where it has none."""
    try:
        name, _, number = _DECODER.decode(line).number.rpartition("#")
        partition = Partition.find(name)
        return None if partition is None else (partition, int(number))
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


class FoundNumbers:
    """Collects numbers by partition, of each partition the highest `most` at least and twice as many at most."""

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
    """As ascending ranges, both ends included."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def from_ranges(ranges: Collection[tuple[int, int]]) -> frozenset[int]:
    """Raises ValueError if they are more than can have been remembered: only damage or a person's hand wrote that."""
    if sum(max(0, last - first + 1) for first, last in ranges) > 2 * MOST_NUMBERS:
        raise ValueError(f"ranges of more than {2 * MOST_NUMBERS} numbers")
    return frozenset(number for first, last in ranges for number in range(first, last + 1))
