"""Decides which directories of an archive count, and which to merge: a merged directory replaces those of its batches. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from notification_service.jobs.errors import ArchiveRefused

_NAME = re.compile(r"batch=([1-9][0-9]{0,17})-([1-9][0-9]{0,17})")


class Span(NamedTuple):
    """The batches in a directory, from `first` to `last`. Batches are numbered from 1 without gaps."""

    first: int
    last: int

    @property
    def name(self) -> str:
        return f"batch={self.first}-{self.last}"


def find_span(name: str) -> Span | None:
    """Return the span that a directory's name states; None for other names."""
    match = _NAME.fullmatch(name)
    span = Span(int(match[1]), int(match[2])) if match else None
    return span if span is not None and span.first <= span.last else None


def visible(spans: Iterable[Span]) -> list[Span]:
    """Return the spans that together hold every batch once, in order: from batch 1 on, always the widest that begins next.

    The result is the same after the spans that it leaves out were removed. So duplicate compactions and removals in progress are
    harmless.

    Raises:
        ArchiveRefused: A batch is missing.
    """
    widest: dict[int, Span] = {}
    for span in spans:
        widest[span.first] = max(widest.get(span.first, span), span)
    found, expected = list[Span](), 1
    while expected in widest:
        found.append(widest[expected])
        expected = found[-1].last + 1
    beyond = [first for first in widest if first > expected]
    if beyond:
        raise ArchiveRefused(f"batch {expected} is missing, but batch {min(beyond)} is there: restore it from a copy")
    return found


FULL_BYTES = 1 << 30
MIN_BATCHES = 10


class Sized(NamedTuple):
    """A directory's span, and the bytes of all its files."""

    span: Span
    bytes: int


def worthwhile(spans: Iterable[Sized], full: int = FULL_BYTES, min_batches: int = MIN_BATCHES) -> list[list[Sized]]:
    """Return groups of neighbouring batches to merge, in order.

    A group has at least two batches of `full` bytes together, or at least `min_batches` batches of less. A batch larger than all
    later ones of its group together is not merged. So a record is rewritten only as often as its directory doubles in size.
    """
    found = (_without_large(group) for group in _groups(spans, full))
    return [group for group in found if len(group) >= (2 if _bytes(group) >= full else min_batches)]


def _groups(spans: Iterable[Sized], full: int) -> Iterator[Sequence[Sized]]:
    group: list[Sized] = []
    for each in spans:
        if each.bytes >= full:
            yield group
            group = []
            continue
        group.append(each)
        if _bytes(group) >= full:
            yield group
            group = []
    yield group


def _without_large(group: Sequence[Sized]) -> list[Sized]:
    remainder, begin = _bytes(group), 0
    for each in group:
        remainder -= each.bytes
        if each.bytes <= remainder:
            break
        begin += 1
    return list(group[begin:])


def _bytes(group: Iterable[Sized]) -> int:
    return sum(each.bytes for each in group)
