"""A unit of work: its state, its stash, and what few units have. Changed in place by turns alone."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from enum import StrEnum
from operator import attrgetter
from typing import Any

import msgspec
from msgspec.structs import replace

from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Event
from resequencer.order import Order
from resequencer.record import Record

REMEMBERED_ENVELOPES = 1_024
"""How many handled envelope ids a unit remembers: at most 16 KiB of state, written with every change. A unit has about 12."""

_WIDTH = 16
"""Bytes per handled envelope: 8 of the hash of its id, then 8 of the digest of its content."""

_EVENT_BYTES = 768
"""Memory of an event and its entry beside the raw data and `weight`, as measured."""


class Wake(StrEnum):
    """Why a unit is woken: the retry of its head is due, the call of its head's handler can begin, its deadline has come, its
    worker exceeds the memory bound, its last turn left a remainder, its hold or the time of its waiting order is over, the
    records that its order waits for were read, or it is idle and its actor is to stop.

    `ORDER` is the cause of a release by an operator's order, too.
    """

    RETRY = "retry"
    CALL = "call"
    DEADLINE = "deadline"
    BOUND = "bound"
    REMAINDER = "remainder"
    HOLD_OVER = "hold-over"
    PASSIVATE = "passivate"
    ORDER = "order"


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An envelope in the stash, since when, and its place: the lane, the place in it, and the offset.

    `size` estimates its bytes in memory. `learned_wait_ms` is its learned wait, None for the default wait.
    """

    order: tuple[str, int, int]
    envelope: Event
    stashed_at: Instant
    size: int
    learned_wait_ms: int | None = None

    @property
    def lane(self) -> str:
        return self.order[0]

    @property
    def offset(self) -> int:
        return self.order[2]


class Retry(msgspec.Struct, frozen=True, gc=False):
    """The head of the stash, under retry. `attempts` were made; the next is due at `due_at`.

    If the head waits for an unavailable server, `dependency` is its name, and `calls` counts the calls that found it unavailable.
    These calls are not attempts.

    `incomplete` and `is_forced` are the marks for the next attempt. `released_to` is the highest offset of the release that the
    head is part of, -1 without a release; with `is_ordered` it is a release by an order. `why` is the error of the last attempt.

    With `is_called` an attempt is made now, by a handler that waits: its call is under way, or begins as soon as it can. `due_at`
    is the instant at which that was decided. If a release was running, `cause` is its cause and it continues after the answer.
    `behind` is the retry of a forced head before which this one goes: that one is in the stash again, with its attempts.
    """

    entry: Entry
    attempts: int
    due_at: Instant
    incomplete: str | None = None
    is_forced: bool = False
    released_to: int = -1
    dependency: str | None = None
    calls: int = 0
    why: str | None = None
    is_ordered: bool = False
    is_called: bool = False
    cause: Wake | None = None
    behind: Retry | None = None


class Remainder(msgspec.Struct, frozen=True, gc=False):
    """Where a turn whose output budget was used up was cut off. The next turn continues there, before later arrivals.

    `lane` is the lane whose loop continues (None for no loop), with the marks from `incomplete` and `released_to`. If a release
    was running, `cause` is its cause and it continues afterwards. With `is_retrying` it continues with the head under retry.
    With `is_ordered` the marks are those of an order.
    """

    lane: str | None = None
    incomplete: str | None = None
    released_to: int = -1
    cause: Wake | None = None
    is_retrying: bool = False
    is_ordered: bool = False


class Hold(msgspec.Struct, frozen=True, gc=False):
    """A hold: until its end nothing of the unit is handled, and what arrives is stashed.

    `order` is the order that began it, at `order_offset` of the orders log; its outcome is published when the hold ends.
    `remaining_ms` is the time that remained until the unit's deadline, None if nothing waited for a deadline.
    """

    order: Order
    order_offset: int
    began_at: Instant
    until: Instant
    remaining_ms: int | None = None


class Ordered(msgspec.Struct, frozen=True, gc=False):
    """An order for a unit, from the offset `order_offset` of its partition's orders log, which its owner read at `read_at`.

    If the partition had unread records then, `unread_to` is where its log ended: missing envelopes may be among them. The order
    may wait for them until `until`; with None it may not.
    """

    order: Order
    order_offset: int
    read_at: Instant = 0
    unread_to: int | None = None
    until: Instant | None = None


class Undecodable(msgspec.Struct, frozen=True):
    """A stashed record that today's configuration no longer decodes. The next turn makes it a dead letter."""

    record: Record
    reason: DeadLetterReason
    error: str


class Rare(msgspec.Struct, frozen=True, gc=False):
    """What nearly no unit has: a head under retry, a remainder with the queue behind it, a hold, a deadline that an order set for
    what is stashed now, stashed records that are not decoded any more, stored data that the next turn replaces by its own, and an
    order that waits until unread records are read.

    `queue` has the envelopes that arrived behind a `remainder`, in order of arrival. They are taken only when the remainder is
    worked off.
    """

    retry: Retry | None = None
    remainder: Remainder | None = None
    queue: tuple[Entry, ...] = ()
    hold: Hold | None = None
    deadline_at: Instant | None = None
    undecodable: tuple[Undecodable, ...] = ()
    has_old_data: bool = False
    waiting_order: Ordered | None = None


_NOTHING_RARE = Rare()
_NO_ENTRIES: list[Entry] = []
_NO_IDS: dict[bytes, Entry] = {}
"""Shared by all units without a stash, and never changed: most units in memory have none."""


class Unit:
    """The whole state of a unit of work.

    `state` is that of the strategy. `handled` has the ids and digests of the handled envelopes, packed, oldest first.
    `gathered_to` is the highest offset whose data was gathered on completion (-1: none). `data_bytes` and `stashed_bytes` are
    the sizes of the data and of the stash. `rare` is None for nearly all units.

    `stash` has the waiting envelopes by lane, then by place, then by offset; it is changed with `add`, `remove`
    and `stash_anew` alone.
    """

    __slots__ = (
        "_by_id",
        "_oldest",
        "data",
        "data_bytes",
        "gathered_to",
        "handled",
        "name",
        "rare",
        "stash",
        "stashed_bytes",
        "state",
    )

    def __init__(self, name: str, state: Any, data: Any = None) -> None:
        self.name = name
        self.state = state
        self.data = data
        self.data_bytes = 0
        self.handled = b""
        self.gathered_to = -1
        self.rare: Rare | None = None
        self.stash = _NO_ENTRIES
        self.stashed_bytes = 0
        self._by_id = _NO_IDS
        self._oldest: Entry | None = None

    @property
    def is_free(self) -> bool:
        """Whether acceptable envelopes may be handled: nothing is under retry, there is no remainder, and no hold."""
        rare = self.rare
        return rare is None or (rare.retry is None and rare.remainder is None and rare.hold is None)

    @property
    def retry(self) -> Retry | None:
        return None if self.rare is None else self.rare.retry

    @property
    def remainder(self) -> Remainder | None:
        return None if self.rare is None else self.rare.remainder

    @property
    def queue(self) -> tuple[Entry, ...]:
        return () if self.rare is None else self.rare.queue

    @property
    def hold(self) -> Hold | None:
        return None if self.rare is None else self.rare.hold

    @property
    def deadline_at(self) -> Instant | None:
        return None if self.rare is None else self.rare.deadline_at

    @property
    def waiting_order(self) -> Ordered | None:
        return None if self.rare is None else self.rare.waiting_order

    @property
    def undecodable(self) -> tuple[Undecodable, ...]:
        return () if self.rare is None else self.rare.undecodable

    @property
    def is_called(self) -> bool:
        """Whether the head's handler is called."""
        retry = self.retry
        return retry is not None and retry.is_called

    @property
    def waits_outside(self) -> bool:
        """Whether the head waits for an unavailable server, or for its handler: no other attempt can be made before."""
        retry = self.retry
        return retry is not None and (retry.is_called or retry.dependency is not None)

    @property
    def dependency(self) -> str | None:
        """The server that the head waits for, None if it waits for none."""
        retry = self.retry
        return None if retry is None else retry.dependency

    def is_like_new(self, initial: Any, no_data: Any) -> bool:
        """Whether nothing waits in the unit and nothing of it is remembered. `initial` and `no_data` are those of a new unit."""
        is_empty = not (self.stash or self.rare or self.handled) and self.gathered_to == -1
        return is_empty and self.data == no_data and self.state == initial

    @property
    def handled_count(self) -> int:
        return len(self.handled) // _WIDTH

    @property
    def oldest(self) -> Entry | None:
        """The stashed envelope that arrived first. It is searched only after it was removed."""
        if self._oldest is None and self.stash:
            self._oldest = min(self.stash, key=_offset)
        return self._oldest

    @property
    def lowest(self) -> Entry | None:
        """The lowest of the lanes' tops, which is forced first."""
        stash = self.stash
        if not stash:
            return None
        return stash[0] if stash[0].order[0] == stash[-1].order[0] else min(self._tops(), key=place_of)

    @property
    def lanes(self) -> list[str]:
        return [each.order[0] for each in self._tops()]

    def _tops(self) -> Iterator[Entry]:
        """Yield the first envelope of each lane. The cost depends on the lanes, not on what waits in them."""
        stash, at = self.stash, 0
        while at < len(stash):
            top = stash[at]
            at += 1
            if at < len(stash) and stash[at].order[0] == top.order[0]:
                at = bisect_left(stash, (top.order[0] + "\x00",), lo=at, key=_order)
            yield top

    def find_top(self, lane: str) -> Entry | None:
        """Return the first envelope of a lane, None if the lane is empty."""
        stash = self.stash
        if not stash:
            return None
        at = 0 if stash[0].order[0] == lane else bisect_left(stash, (lane,), key=_order)
        return stash[at] if at < len(stash) and stash[at].order[0] == lane else None

    def has(self, entry: Entry) -> bool:
        """Whether the entry is in the stash."""
        at = bisect_left(self.stash, entry.order, key=_order)
        return at < len(self.stash) and self.stash[at] is entry

    def find_digest(self, id_hash: bytes) -> bytes | None:
        """Return the digest of the envelope with this id that was handled or waits; None if the id is new."""
        rare, packed = self.rare, self.handled
        if rare is not None and rare.retry is not None and rare.retry.entry.envelope.id_hash == id_hash:
            return rare.retry.entry.envelope.digest
        at = packed.find(id_hash)
        while at != -1:
            if at % _WIDTH == 0:
                return packed[at + 8 : at + _WIDTH]
            at = packed.find(id_hash, at + 1)
        entry = self._by_id.get(id_hash)
        return None if entry is None else entry.envelope.digest

    def remember(self, envelope: Event) -> None:
        """Remember the id of a handled envelope. Beyond `REMEMBERED_ENVELOPES` the oldest are forgotten."""
        packed = self.handled + envelope.id_hash + envelope.digest
        self.handled = packed if len(packed) <= REMEMBERED_ENVELOPES * _WIDTH else packed[-REMEMBERED_ENVELOPES * _WIDTH :]

    def keep(self, data: Any, size: int) -> None:
        """Replace the unit's data, which have about `size` bytes."""
        self.data, self.data_bytes = data, size

    def add(self, entry: Entry) -> None:
        """Add an envelope to the stash."""
        stash, oldest = self.stash, self._oldest
        self.stashed_bytes += entry.size
        if not stash:
            self.stash, self._by_id, self._oldest = [entry], {entry.envelope.id_hash: entry}, entry
            return
        if stash[-1].order < entry.order:
            stash.append(entry)
        else:
            insort(stash, entry, key=_order)
        self._by_id[entry.envelope.id_hash] = entry
        if oldest is not None and entry.order[2] < oldest.order[2]:
            self._oldest = entry

    def remove(self, entry: Entry) -> None:
        """Remove an envelope, which must be in the stash."""
        stash = self.stash
        at = 0 if stash[0] is entry else bisect_left(stash, entry.order, key=_order)
        assert stash[at] is entry, "only what is in the stash leaves it"
        if len(stash) == 1:
            self.stash_anew(())
            return
        del stash[at]
        self._by_id.pop(entry.envelope.id_hash, None)  # A damaged storage may have it twice.
        self.stashed_bytes -= entry.size
        if self._oldest is entry:
            self._oldest = None

    def stash_anew(self, entries: Sequence[Entry]) -> None:
        """Replace the stash by these entries, which are in its order."""
        self.stash, self.stashed_bytes, self._by_id, self._oldest = _NO_ENTRIES, 0, _NO_IDS, None
        if entries:
            self.stash = list(entries)
            self.stashed_bytes = sum([each.size for each in self.stash])
            self._by_id = {each.envelope.id_hash: each for each in self.stash}

    def amend(self, **changes: Any) -> None:
        """Change fields of `rare`."""
        rare = replace(self.rare or _NOTHING_RARE, **changes)
        self.rare = None if rare == _NOTHING_RARE else rare

    def saved(self) -> tuple[Any, ...]:
        """Return what `restore` needs to undo a turn: all values are immutable, or copied."""
        stash = self.stash.copy() if self.stash else ()
        return self.state, self.data, self.data_bytes, self.handled, self.gathered_to, self.rare, stash, self._oldest

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Make the unit what it was when `saved` was called. A copy of it may be restored as often as needed."""
        self.state, self.data, self.data_bytes, self.handled, self.gathered_to, self.rare = saved[:6]
        self.stash_anew(saved[6])
        self._oldest = saved[7]

    def copy(self) -> Unit:
        """Return a unit of its own that is the same."""
        made = Unit(self.name, self.state)
        made.restore(self.saved())
        return made


def entry_of(envelope: Event, lane: str, place: int, at: Instant, learned_wait_ms: int | None = None) -> Entry:
    """Return a stash entry. Its size is about the record, its texts again, and the measured overhead."""
    record = envelope.record
    size = 2 * record.size + _EVENT_BYTES + envelope.weight
    return Entry((lane, place, record.origin[1]), envelope, at, size, learned_wait_ms)


def unranked(entry: Entry) -> Entry:
    """Return the entry as it is queued: the strategy has not ranked it, it has its place by arrival alone."""
    return replace(entry, order=("", 0, entry.offset))


def place_of(entry: Entry) -> tuple[int, int]:
    """The order of a release: the place, then the order of arrival, whatever the lane."""
    return entry.order[1:]


_order = attrgetter("order")


def _offset(entry: Entry) -> int:
    return entry.order[2]
