"""The stash: envelopes that wait, in the order in which they are considered for handling."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from resequencer.lane import Lane, with_one, without_one
from resequencer.stashed_ids import StashedIds
from resequencer.strategies.port import Rank

_ENVELOPE_BYTES = 768
_OBJECT_BYTES = 320
"""Memory beside the raw data, as measured: an event with all fields takes 340 bytes, an empty object 110."""

UNRANKED = Rank("", 0)
"""The rank of queued envelopes, which the strategy has not ranked yet: they are in order of arrival."""


class Stashed(msgspec.Struct, frozen=True, gc=False):
    """An envelope in the stash, since when, and its rank. `learned_wait_ms` is its learned wait, None for the default wait."""

    envelope: DataEnvelope
    rank: Rank
    stashed_at: Instant
    learned_wait_ms: int | None = None

    @property
    def order(self) -> tuple[int, int]:
        """The sort key: the place, then the order of arrival."""
        return self.rank.place, self.envelope.offset

    @property
    def size(self) -> int:
        """An estimate of its bytes in memory: the record, the bodies again, and the measured overhead."""
        envelope = self.envelope
        objects = len(envelope.mds_objects) + len(envelope.pds_objects) + len(envelope.custom_objects)
        objects += len(envelope.process_objects)
        return 2 * envelope.record.size + _ENVELOPE_BYTES + _OBJECT_BYTES * objects


class Stash(msgspec.Struct, frozen=True, gc=False):
    """Lanes of envelopes, each with its top first. `ids` finds envelopes by id.

    `names` are the names of the `lanes`, ascending. Empty lanes are removed.
    """

    names: tuple[str, ...] = ()
    lanes: tuple[Lane[Stashed], ...] = ()
    ids: StashedIds = StashedIds()
    size: int = 0
    known_oldest: Stashed | None = None

    def __len__(self) -> int:
        return self.ids.count

    def __iter__(self) -> Iterator[Stashed]:
        """Iterate over all envelopes, in no particular order."""
        return chain.from_iterable(chain.from_iterable(self.lanes))

    @property
    def oldest(self) -> Stashed | None:
        """The envelope that arrived first. It is searched only after the known oldest was removed."""
        return self.known_oldest or min(self, key=_offset, default=None)

    @property
    def lowest(self) -> Stashed | None:
        """The lowest of the lanes' tops, which is forced first."""
        if len(self.lanes) == 1:
            return self.lanes[0][0][0]
        return min([lane[0][0] for lane in self.lanes], key=_order, default=None)

    def find_top(self, name: str) -> Stashed | None:
        """Return the top of a lane, None if there is no such lane."""
        lane = self._lane(bisect_left(self.names, name), name)
        return lane[0][0] if lane else None

    def add(self, stashed: Stashed) -> Stash:
        name, envelope = stashed.rank.lane, stashed.envelope
        ids = self.ids.add(envelope.id_hash, envelope.digest)
        if not self.lanes:
            return Stash((name,), (((stashed,),),), ids, stashed.size, stashed)
        at = bisect_left(self.names, name)
        lane = self._lane(at, name)
        names = self.names if lane else (*self.names[:at], name, *self.names[at:])
        lanes = (*self.lanes[:at], with_one(lane, stashed), *self.lanes[at + bool(lane) :])
        return Stash(names, lanes, ids, self.size + stashed.size, self.oldest)

    def without(self, stashed: Stashed) -> Stash:
        """Return the stash without this envelope, which must be in it."""
        if len(self) == 1:
            return _EMPTY
        at = bisect_left(self.names, stashed.rank.lane)
        rest = without_one(self.lanes[at], stashed)
        names = self.names if rest else (*self.names[:at], *self.names[at + 1 :])
        lanes = (*self.lanes[:at], *((rest,) if rest else ()), *self.lanes[at + 1 :])
        ids = self.ids.remove(stashed.envelope.id_hash)
        return Stash(names, lanes, ids, self.size - stashed.size, None if stashed is self.known_oldest else self.known_oldest)

    def _lane(self, at: int, name: str) -> Lane[Stashed]:
        return self.lanes[at] if at < len(self.names) and self.names[at] == name else ()


_EMPTY = Stash()


def _order(stashed: Stashed) -> tuple[int, int]:
    return stashed.order


def _offset(stashed: Stashed) -> int:
    return stashed.envelope.offset
