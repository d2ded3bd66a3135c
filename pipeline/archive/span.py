"""Which directories of an archive count: one that holds several batches is read in place of each of them. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from pipeline.archive.errors import ArchiveRefused

_NAME = re.compile(r"batch=([1-9][0-9]{0,17})-([1-9][0-9]{0,17})")


class Span(NamedTuple):
    """The batches that a directory holds, from `first` to `last`; they are numbered from 1 on, without a gap."""

    first: int
    last: int

    @property
    def name(self) -> str:
        return f"batch={self.first}-{self.last}"


def find_span(name: str) -> Span | None:
    """That of a directory's name; None for what is none."""
    match = _NAME.fullmatch(name)
    span = Span(int(match[1]), int(match[2])) if match else None
    return span if span is not None and span.first <= span.last else None


def visible(spans: Iterable[Span]) -> list[Span]:
    """Those that together hold every batch once, in order: from 1 on always the widest that begins where the last one ended.

    The same spans give the same answer, and giving up what it leaves out does not change it: what was compacted twice at once,
    or is being removed, hurts nobody.

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
        raise ArchiveRefused(f"batch {expected} is missing, batch {min(beyond)} is there: restore it from a copy")
    return found
