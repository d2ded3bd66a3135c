"""One partition that is delivered straight from its topic: what is open of it, and how far its position may go. Pure."""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from connectors.port import OutputRecord, PartitionOutput, Position
from delivery.direct.open_record import OpenRecord
from delivery.direct.position_metadata import PositionMetadata
from domain.printable import counted
from domain.record import Partition
from guardian.done_offsets import CHARACTERS_PER_RECORD, MOST_CHARACTERS, longest
from guardian.positions import Positions

_MUCH_ROOM = 1_000
_NUMBERS = 32
"""More characters than the numbers take that are written before the bits."""

_LEAST_ROOM = 50
"""A partition with room for fewer records rests, unless they are read for the second time."""


class DirectPartition:
    """The records of a lane are delivered one after the other; lanes do not wait for each other.

    The position never passes an open record. What is done beyond it is listed in its metadata, and is not delivered again
    after a restart. `blocked_bytes` is how much may be read and open. Instants are in ms of a clock that never goes back.
    """

    def __init__(self, partition: Partition, offset: int, metadata: PositionMetadata, blocked_bytes: int) -> None:
        self.partition = partition
        self.read_to = offset
        self.skips_all = metadata.skips_all
        self.orders_read_to = metadata.orders_read_to
        self.has_news = False
        self.open_bytes = 0
        self._blocked_bytes = blocked_bytes
        self._done = metadata.done
        self._positions = Positions(offset, 0)
        self._lanes: dict[bytes | int, deque[OpenRecord]] = {}
        self._open: dict[int, OpenRecord] = {}
        self._ready: deque[OpenRecord] = deque()
        self._waiting: list[tuple[int, int, OpenRecord]] = []
        self._turns = count()
        self._room, self._room_at = 0, (-1, -1)
        self._leaving: list[OutputRecord] = []

    @property
    def position(self) -> int:
        """The offset from which reading goes on after a restart."""
        return self._positions.acknowledged

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def ready_count(self) -> int:
        """How many records were due when `take_due` was called, and were not taken."""
        return len(self._ready)

    @property
    def leaving_bytes(self) -> int:
        """The size of what leaves with the next position."""
        return sum(len(each.value) for each in self._leaving)

    @property
    def room(self) -> int:
        """How many records may be read before what is done beyond the position could no longer be listed.

        While the position and the end of what was read stay, it may grow a little as records end, but never falls.
        """
        where = (self.position, self.read_to)
        if where != self._room_at:
            self._room, self._room_at = self._find_room(), where
        return self._room

    @property
    def pause(self) -> str | None:
        """Return why nothing more of the partition is read; None if it is read on."""
        if self.open_bytes >= self._blocked_bytes:
            return f"{counted(self.open_bytes, 'byte')} behind its position are not delivered yet (blocked-bytes)"
        if self.room < _LEAST_ROOM:
            return "its position cannot list more of what is done beyond it"
        return None

    def _find_room(self) -> int:
        # A bit for each offset lists any pattern: as long as there are enough bits, nothing needs to be measured.
        bits = 6 * (MOST_CHARACTERS - _NUMBERS) - (max(self.read_to, self._done.end) - self.position)
        if bits >= _MUCH_ROOM:
            return bits
        done = self._done.advanced(self.read_to, self._positions.unsettled)
        room = (MOST_CHARACTERS - longest(self.position, done)) // CHARACTERS_PER_RECORD - 1
        return max(room, self._done.end - self.read_to)

    def is_done(self, offset: int) -> bool:
        """Return whether the record was done before the partition was taken over."""
        return self._done.is_done(offset)

    def read(self, records: Sequence[OpenRecord], next_offset: int, leaving: Sequence[OutputRecord] = ()) -> None:
        """Take in what was read up to `next_offset`; records that are not among these are done, and `leaving` comes of them."""
        self._positions.read([each.offset for each in records], next_offset, 0)
        self.read_to = next_offset
        self.has_news = True
        self._leaving += leaving
        for each in records:
            self.open_bytes += each.record.size
            self._open[each.offset] = each
            lane = self._lanes.setdefault(each.lane, deque())
            lane.append(each)
            if len(lane) == 1:
                self._push(each)

    def take_due(self, now: int, most: int) -> list[OpenRecord]:
        """Return up to `most` records that are due. Each must come back by `again` or `end`."""
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heappop(self._waiting)[2])
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def find_next_due(self) -> int | None:
        """Return when the next record is due, None if nothing waits."""
        if self._ready:
            return self._ready[0].due_at
        return self._waiting[0][0] if self._waiting else None

    def again(self, record: OpenRecord, due_at: int) -> None:
        """Let a record that was taken wait until `due_at`."""
        record.due_at = due_at
        self._push(record)

    def end(self, record: OpenRecord, *leaving: OutputRecord) -> None:
        """Note that the record is done. What is `leaving` is published with the next position."""
        self._positions.settle(record.offset, 0)
        self._leaving += leaving
        self.open_bytes -= record.record.size
        self.has_news = True
        del self._open[record.offset]
        lane = self._lanes[record.lane]
        assert lane[0] is record, "the records of a lane end one after the other"
        lane.popleft()
        if lane:
            self._push(lane[0])
        else:
            del self._lanes[record.lane]

    def pass_order(self, read_to: int, *leaving: OutputRecord) -> None:
        """Note that the orders up to `read_to` were executed; their outcomes leave with the next position."""
        self.orders_read_to = read_to
        self._leaving += leaving
        self.has_news = True

    def find_open(self, offset: int) -> OpenRecord | None:
        return self._open.get(offset)

    def recall(self, record: OpenRecord) -> bool:
        """Take a record that waits; return whether it waited."""
        if record in self._ready:
            self._ready.remove(record)
            return True
        left = [each for each in self._waiting if each[2] is not record]
        waited = len(left) < len(self._waiting)
        self._waiting = left
        heapify(self._waiting)
        return waited

    def blocked(self) -> Iterator[OpenRecord]:
        """Yield the records of which a call failed, in the order in which they were read."""
        return (each for each in self._open.values() if each.error is not None)

    def output(self) -> PartitionOutput:
        """Return what leaves now, with the position. Call `published` when it has left."""
        self.has_news = False
        offset = self.position
        done = self._done.advanced(self.read_to, self._positions.unsettled)
        metadata = PositionMetadata(done, self.skips_all, self.orders_read_to).encode(offset)
        return PartitionOutput(self.partition, tuple(self._leaving), Position(offset, metadata))

    def published(self, output: PartitionOutput) -> None:
        """Forget what has left."""
        del self._leaving[: len(output.records)]

    def _push(self, record: OpenRecord) -> None:
        heappush(self._waiting, (record.due_at, next(self._turns), record))
