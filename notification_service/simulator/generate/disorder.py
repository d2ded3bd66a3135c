"""Disorders a stream: items are moved, doubled, lost, late or contradicted. Pure; the random generators are parameters."""

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from heapq import heappop, heappush
from random import Random
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Fate(Enum):
    """What happens to one copy of an item."""

    WRITTEN = auto()
    LATE = auto()
    LOST = auto()


class Disordered(NamedTuple, Generic[T]):
    """One copy of an item at its new place. `copies` is the item's number of copies. A lost item has one copy, at its old place.

    A copy that `contradicts` gets other content under the same id.
    """

    item: T
    fate: Fate
    copies: int
    contradicts: bool = False


class Rates(NamedTuple):
    """Shares of all items, 0 … 1. The duplicate of a late item is late; other duplicates are late at the same rate as items.

    A contradicted item is not lost, and its copies are either all late or none. So the first copy that comes up is the one that
    counts.
    """

    duplicates: float
    losses: float
    late: float
    conflicts: float = 0.0


class Chances(NamedTuple):
    """The random generators. Conflicts have one of their own, so that their share does not change anything else."""

    rng: Random
    of_conflicts: Random


def disordered(items: Iterable[T], *, window: int, rates: Rates, chances: Chances) -> Iterator[Disordered[T]]:
    """Yield every item, some of them twice, each at most `window` places from its own.

    The item at place n gets a random key of n … n + window, and items come in order of their keys. So at most `window` places are
    held in memory. Either of two copies may come first.
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
    """Yield each copy with the number of places by which it moves."""
    rng, of_conflicts = chances
    fates = _fates(rates, rng)
    is_contradicted = of_conflicts.random() < rates.conflicts and fates[0] is not Fate.LOST
    copies = len(fates) + is_contradicted
    for fate in fates:
        yield rng.random() * window, Disordered(item, fates[0] if is_contradicted else fate, copies)
    if is_contradicted:
        yield of_conflicts.random() * window, Disordered(item, fates[0], copies, contradicts=True)


def _fates(rates: Rates, rng: Random) -> list[Fate]:
    """Return the fate of each copy. Every item takes the same number of random draws, whatever its fate."""
    chance, doubling, again = rng.random(), rng.random(), rng.random()
    if chance < rates.losses:
        return [Fate.LOST]
    is_late = chance < rates.losses + rates.late
    first = Fate.LATE if is_late else Fate.WRITTEN
    if doubling >= rates.duplicates:
        return [first]
    return [first, Fate.LATE if is_late or again < rates.late else Fate.WRITTEN]
