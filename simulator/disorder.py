"""Puts a stream out of order: moved, doubled, lost, late. Pure; chance is handed in."""

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
    """One copy of an item at its new place, of `copies` in all. A lost item has one of these too, where it would have stood."""

    item: T
    fate: Fate
    copies: int


class Rates(NamedTuple):
    """Shares of all items, 0 … 1. The duplicate of a late item is late; any other is late by the same rate as an item."""

    duplicates: float
    losses: float
    late: float


def disordered(items: Iterable[T], *, window: int, rates: Rates, rng: Random) -> Iterator[Disordered[T]]:
    """Every item, some of them twice, each at most `window` places of the stream from where it stood.

    An item at place n comes out when a key of n … n + window is the lowest left, so nothing moves further, and no more
    than `window` places are held at a time. Of two copies either may come first.
    """
    held: list[tuple[float, int, Disordered[T]]] = []
    count = 0
    for place, item in enumerate(items):
        while held and held[0][0] < place:
            yield heappop(held)[2]
        for fate, copies in _fates(rates, rng):
            heappush(held, (place + rng.random() * window, count, Disordered(item, fate, copies)))
            count += 1
    while held:
        yield heappop(held)[2]


def _fates(rates: Rates, rng: Random) -> list[tuple[Fate, int]]:
    """Of each copy, with the number of copies. The same number of draws for every item, whatever comes of it."""
    chance, doubling, again = rng.random(), rng.random(), rng.random()
    if chance < rates.losses:
        return [(Fate.LOST, 1)]
    is_late = chance < rates.losses + rates.late
    first = Fate.LATE if is_late else Fate.WRITTEN
    if doubling >= rates.duplicates:
        return [(first, 1)]
    return [(first, 2), (Fate.LATE if is_late or again < rates.late else Fate.WRITTEN, 2)]
