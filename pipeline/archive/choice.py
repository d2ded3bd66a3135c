"""Which batches are worth being made one. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pipeline.archive.span import Span

FULL_BYTES = 1 << 30
LEAST = 10


class Sized(NamedTuple):
    """`bytes` of all its files."""

    span: Span
    bytes: int


def worthwhile(spans: Iterable[Sized], full: int = FULL_BYTES, least: int = LEAST) -> list[list[Sized]]:
    """Neighbours that are to be made one, in order: at least two that come to `full` bytes together, or `least` that do not yet.

    One that is larger than all behind it together is left alone, so that a record is written anew only as often as its directory
    has doubled.
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
