"""The stash: envelopes set aside in the order in which they will be looked at."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from resequencer.envelope_ids import EnvelopeIds
from resequencer.strategies.port import Rank


class Stashed(msgspec.Struct, frozen=True):
    """An envelope in the stash, since when, and where it stands."""

    envelope: DataEnvelope
    rank: Rank
    stashed_at: Instant

    @property
    def order(self) -> tuple[int, int]:
        """Place first, ties by arrival."""
        return self.rank.place, self.envelope.offset

    @property
    def size(self) -> int:
        """About the bytes it holds in memory: its record, the bodies again, and a measured kilobyte of objects around them."""
        return 2 * len(self.envelope.record.value) + 1_024


Lane = tuple[Stashed, ...]


class Stash(msgspec.Struct, frozen=True):
    """Lanes of envelopes by name, each with its top last, so that taking it costs one copy. Found again by envelope id."""

    lanes: tuple[tuple[str, Lane], ...] = ()
    ids: EnvelopeIds = EnvelopeIds()
    size: int = 0
    known_oldest: Stashed | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Stashed]:
        """All of them, in no particular order."""
        return (each for _, lane in self.lanes for each in lane)

    @property
    def oldest(self) -> Stashed | None:
        """The first to have arrived. Looked for only after it has left."""
        return self.known_oldest or min(self, key=lambda each: each.envelope.offset, default=None)

    @property
    def lowest(self) -> Stashed | None:
        """The one that is forced first: the lowest of the tops."""
        return min((lane[-1] for _, lane in self.lanes), key=lambda each: each.order, default=None)

    def find_top(self, name: str) -> Stashed | None:
        """The top of a lane."""
        at = self._index(name)
        return self.lanes[at][1][-1] if self._stands(at, name) else None

    def add(self, stashed: Stashed) -> Stash:
        name, envelope = stashed.rank.lane, stashed.envelope
        lane = self._lane(name)
        at = bisect_left(lane, _descending(stashed), key=_descending)
        return Stash(
            self._with_lane(name, (*lane[:at], stashed, *lane[at:])),
            self.ids.add(envelope.id_hash, envelope.digest),
            self.size + stashed.size,
            self.oldest or stashed,
        )

    def without_top(self, stashed: Stashed) -> Stash:
        """Without this envelope, which is the top of its lane."""
        lane = self._lane(stashed.rank.lane)
        assert lane[-1] is stashed, "only the top of a lane leaves"
        return Stash(
            self._with_lane(stashed.rank.lane, lane[:-1]),
            self.ids.remove(stashed.envelope.id_hash),
            self.size - stashed.size,
            None if stashed is self.known_oldest else self.known_oldest,
        )

    def _lane(self, name: str) -> Lane:
        at = self._index(name)
        return self.lanes[at][1] if self._stands(at, name) else ()

    def _with_lane(self, name: str, lane: Lane) -> tuple[tuple[str, Lane], ...]:
        at = self._index(name)
        after = at + 1 if self._stands(at, name) else at
        return (*self.lanes[:at], *(((name, lane),) if lane else ()), *self.lanes[after:])

    def _index(self, name: str) -> int:
        return bisect_left(self.lanes, name, key=_name)

    def _stands(self, at: int, name: str) -> bool:
        return at < len(self.lanes) and self.lanes[at][0] == name


def _descending(stashed: Stashed) -> tuple[int, int]:
    place, offset = stashed.order
    return -place, -offset


def _name(lane: tuple[str, Lane]) -> str:
    return lane[0]
