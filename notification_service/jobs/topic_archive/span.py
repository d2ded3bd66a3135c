"""Decides which directories of an archive count: a merged directory replaces those of its batches. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from notification_service.jobs.topic_archive.errors import ArchiveRefused

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
