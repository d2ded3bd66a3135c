"""Puts a stream out of order: moved, doubled, lost, late, contradicted. Pure; chance is handed in."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from heapq import heappop, heappush
from random import Random
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Fate(Enum):
    """What becomes of one copy of an item."""

    WRITTEN = auto()
    LATE = auto()
    LOST = auto()


class Disordered(NamedTuple, Generic[T]):
    """One copy of an item at its new place, of `copies` in all. A lost item has one of these too, where it would have stood.

    One that `contradicts` is to say something else under the same name.
    """

    item: T
    fate: Fate
    copies: int
    contradicts: bool = False


class Rates(NamedTuple):
    """Shares of all items, 0 … 1. The duplicate of a late item is late; any other is late by the same rate as an item.

    What is contradicted is not lost, and its copies are late together or not at all: which of them comes first is known
    when the first of them comes.
    """

    duplicates: float
    losses: float
    late: float
    conflicts: float = 0.0


class Chances(NamedTuple):
    """One for conflicts alone: with another share of them everything else stays as it was."""

    rng: Random
    of_conflicts: Random


def disordered(items: Iterable[T], *, window: int, rates: Rates, chances: Chances) -> Iterator[Disordered[T]]:
    """Every item, some of them twice, each at most `window` places of the stream from where it stood.

    An item at place n comes out when a key of n … n + window is the lowest left, so nothing moves further, and no more
    than `window` places are held at a time. Of two copies either may come first.
    """
    held: list[tuple[float, int, Disordered[T]]] = []
    count = 0
    for place, item in enumerate(items):
        while held and held[0][0] < place:
            yield heappop(held)[2]
        for moved, copy in _copies(item, window, rates, chances):
            heappush(held, (place + moved, count, copy))
            count += 1
    while held:
        yield heappop(held)[2]


def _copies(item: T, window: int, rates: Rates, chances: Chances) -> Iterator[tuple[float, Disordered[T]]]:
    """Each copy, with the places by which it moves."""
    rng, of_conflicts = chances
    fates = _fates(rates, rng)
    is_contradicted = of_conflicts.random() < rates.conflicts and fates[0] is not Fate.LOST
    copies = len(fates) + is_contradicted
    for fate in fates:
        yield rng.random() * window, Disordered(item, fates[0] if is_contradicted else fate, copies)
    if is_contradicted:
        yield of_conflicts.random() * window, Disordered(item, fates[0], copies, contradicts=True)


def _fates(rates: Rates, rng: Random) -> list[Fate]:
    """Of each copy. The same number of draws for every item, whatever comes of it."""
    chance, doubling, again = rng.random(), rng.random(), rng.random()
    if chance < rates.losses:
        return [Fate.LOST]
    is_late = chance < rates.losses + rates.late
    first = Fate.LATE if is_late else Fate.WRITTEN
    if doubling >= rates.duplicates:
        return [first]
    return [first, Fate.LATE if is_late or again < rates.late else Fate.WRITTEN]
