"""Chooses which batches to merge. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from notification_service.jobs.topic_archive.span import Span

FULL_BYTES = 1 << 30
LEAST = 10


class Sized(NamedTuple):
    """A directory's span, and the bytes of all its files."""

    span: Span
    bytes: int


def worthwhile(spans: Iterable[Sized], full: int = FULL_BYTES, least: int = LEAST) -> list[list[Sized]]:
    """Return groups of neighbouring batches to merge, in order.

    A group has at least two batches of `full` bytes together, or at least `least` batches of less. A batch larger than all later
    ones of its group together is left out. So a record is rewritten only as often as its directory doubles in size.
    """
    found = (_without_large(group) for group in _groups(spans, full))
    return [group for group in found if len(group) >= (2 if _bytes(group) >= full else least)]


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
    rest, begin = _bytes(group), 0
    for each in group:
        rest -= each.bytes
        if each.bytes <= rest:
            break
        begin += 1
    return list(group[begin:])


def _bytes(group: Iterable[Sized]) -> int:
    return sum(each.bytes for each in group)
