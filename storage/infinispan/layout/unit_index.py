"""The unit index: the pages that may contain a unit, in eight bytes per unit. Pure."""

import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from zlib import crc32

PAGE_BITS = 34
"""Page numbers are below 2**34. The other 30 bits of an entry are the unit's fingerprint."""

MAX_MERGED = 2**19
"""The most entries of a merged run; such a merge takes about 50 ms."""

Entries: TypeAlias = "array[int]"
"""Sorted entries, each a unit's fingerprint with its page."""

_PAGE = 2**PAGE_BITS - 1
_GROWTH = 4


class _Run(NamedTuple):
    """Entries with pages up to `last_page`."""

    entries: Entries
    last_page: int


class UnitIndex:
    """Sorted runs of entries. A page found for a unit may not contain it, because units may share a fingerprint."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def add(self, entries: Entries, last_page: int) -> None:
        """Add entries. Their pages are greater than all pages before, up to `last_page`."""
        if entries:
            self._runs.append(_Run(entries, last_page))

    def find(self, unit: str, tail: int) -> list[int]:
        """Return the pages from `tail` on that may contain the unit, the newest first."""
        fingerprint = _fingerprint(unit)
        first, end = fingerprint << PAGE_BITS, (fingerprint + 1) << PAGE_BITS
        pages = []
        for entries, _ in self._runs:
            at = bisect_left(entries, first)
            while at < len(entries) and entries[at] < end:
                pages.append(entries[at] & _PAGE)
                at += 1
        return sorted({page for page in pages if page >= tail}, reverse=True) if pages else pages

    def tidy(self, tail: int) -> None:
        """Merge two runs of similar length, without pages below `tail`. So there are never many runs.

        Called with each commit, and does only a little work each time.
        """
        self._runs = [run for run in self._runs if run.last_page >= tail]
        for at in range(len(self._runs) - 1, 0, -1):
            (older, _), (newer, last_page) = self._runs[at - 1 : at + 1]
            if len(older) < _GROWTH * len(newer) and len(older) + len(newer) <= MAX_MERGED:
                entries = array("Q", [each for each in merged(older, newer) if each & _PAGE >= tail])
                self._runs[at - 1 : at + 1] = [_Run(entries, last_page)]
                return


def entries_of(placed: Iterable[tuple[str, int]]) -> Entries:
    """Return the sorted entries of units and their pages."""
    return array("Q", sorted(_fingerprint(unit) << PAGE_BITS | page for unit, page in placed))


def to_bytes(entries: Entries) -> bytes:
    """Encode entries, the least significant byte first on every machine."""
    if sys.byteorder == "big":
        entries = array("Q", entries)
        entries.byteswap()
    return entries.tobytes()


def from_bytes(data: bytes) -> Entries:
    """Decode entries. Raises ValueError if `data` is not a whole number of entries."""
    entries = array("Q")
    entries.frombytes(data)
    if sys.byteorder == "big":
        entries.byteswap()
    return entries


def merged(first: Entries, second: Entries) -> Entries:
    # `sorted` detects the two sorted runs and merges them.
    return array("Q", sorted(first.tolist() + second.tolist()))


def _fingerprint(unit: str) -> int:
    return crc32(unit.encode()) >> (PAGE_BITS - 32)
