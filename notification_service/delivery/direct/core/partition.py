"""One partition that is delivered straight from its topic: what is open of it, and how far its position may go. Pure.

Orders and outcomes are in one topic, `TOPIC-GROUP-orders`; its partition N belongs to partition N of the source.
"""

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from heapq import heapify, heappop, heappush, nsmallest
from itertools import count, islice
from typing import Annotated, NamedTuple

import msgspec

from guardian.headers import outcome_headers
from guardian.ports import Channel, OutputRecord, PartitionOutput, Position
from guardian.positions import DoneOffsets, Positions
from notification_service.delivery.direct.core.decision import OpenRecord, Stage
from notification_service.delivery.direct.core.position_metadata import MIN_READABLE, PositionMetadata, fitted, max_readable
from resequencer.clock import Instant, instant_text
from resequencer.order import OrderText, ShortText
from resequencer.printable import counted, printable
from resequencer.record import Partition


class Lanes:
    """The records of a lane are due one after the other; lanes do not wait for each other.

    Instants are in ms of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._lanes: dict[bytes | int, deque[OpenRecord]] = {}
        self._ready: deque[OpenRecord] = deque()
        self._waiting: list[tuple[int, int, OpenRecord]] = []
        self._turns = count()

    @property
    def ready_count(self) -> int:
        """How many records were due when `take_due` was called, and were not taken."""
        return len(self._ready)

    def add(self, record: OpenRecord) -> None:
        """Add a record behind those of its lane."""
        lane = self._lanes.setdefault(record.lane, deque())
        lane.append(record)
        if len(lane) == 1:
            self.push(record)

    def push(self, record: OpenRecord) -> None:
        """Let the head of a lane wait until it is due."""
        heappush(self._waiting, (record.due_at, next(self._turns), record))

    def push_first(self, record: OpenRecord) -> None:
        """Let the head of a lane be taken before all others."""
        self._ready.appendleft(record)

    def take_due(self, now: int, limit: int) -> list[OpenRecord]:
        """Return up to `limit` heads that are due. They are due no more."""
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heappop(self._waiting)[2])
        return [self._ready.popleft() for _ in range(min(limit, len(self._ready)))]

    def find_next_due(self) -> int | None:
        """Return when the next head is due, None if none waits."""
        if self._ready:
            return self._ready[0].due_at
        return self._waiting[0][0] if self._waiting else None

    def recall(self, records: Collection[OpenRecord]) -> list[OpenRecord]:
        """Take those of the records that wait, and return them."""
        wanted = set(records)
        found = [each for each in self._ready if each in wanted]
        found += [each for _, _, each in self._waiting if each in wanted]
        if found:
            self._ready = deque(each for each in self._ready if each not in wanted)
            self._waiting = [each for each in self._waiting if each[2] not in wanted]
            heapify(self._waiting)
        return found

    def is_head(self, record: OpenRecord) -> bool:
        return self._lanes[record.lane][0] is record

    def advance(self, name: bytes | int) -> None:
        """Let a lane continue with the record behind its head."""
        lane = self._lanes[name]
        lane.popleft()
        if lane:
            self.push(lane[0])
        else:
            del self._lanes[name]


MAX_RECORDS, MAX_BYTES = 500, 4 << 20
"""So much is published with one position at most, so that no transaction takes long."""


class Departure(msgspec.Struct, frozen=True):
    """`output` is to be published. `offset` is that of its record, and `lane` waits until it is published; None: none."""

    output: OutputRecord
    offset: int | None = None
    lane: bytes | int | None = None

    @property
    def is_outcome(self) -> bool:
        return self.output.channel is Channel.ORDER_OUTCOMES


class Departures:
    """In the order in which they are published. What was taken once is taken again, until it is published."""

    def __init__(self) -> None:
        self._waiting: deque[Departure] = deque()
        self._taken = 0
        self.bytes = 0
        """The size of all that waits."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, each: Departure) -> None:
        self._waiting.append(each)
        self.bytes += len(each.output.value or b"")

    def take(self) -> list[Departure]:
        """Return what is published now: what was taken before, and more up to the bounds."""
        self._taken = max(self._taken, self._find_cut())
        return list(islice(self._waiting, self._taken))

    def published(self, count: int) -> Sequence[Departure]:
        """Note that the first `count` are published; return them."""
        gone = [self._waiting.popleft() for _ in range(count)]
        self._taken -= count
        self.bytes -= sum(len(each.output.value or b"") for each in gone)
        return gone

    def find_first_order(self) -> int | None:
        """Return the offset of the first order whose outcome waits and was not taken; None if there is none."""
        remainder = islice(self._waiting, self._taken, None)
        return next((each.output.number - 1 for each in remainder if each.is_outcome), None)

    def _find_cut(self) -> int:
        taken, is_whole = 0, False
        for number, each in enumerate(self._waiting):
            taken += len(each.output.value or b"")
            if is_whole and (number >= MAX_RECORDS or taken > MAX_BYTES):
                return number
            # The outcome of an order leaves together with the record behind it, which the order was about.
            is_whole = not each.is_outcome
        return len(self._waiting)


_RECORD_BYTES = 2_048
"""About what an open record takes beside its own bytes."""


class DirectPartition:
    """The records of a lane are delivered one after the other; lanes do not wait for each other.

    The position never passes an open record, nor one of which something has to leave that does not leave with this position.
    What is done beyond it is listed in its metadata, and is not delivered again after a restart. `blocked_bytes` is how much may
    be read and open. Instants are in ms of a clock that never goes back.
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
        self._positions = Positions(offset)
        self._lanes = Lanes()
        self._open: dict[int, OpenRecord] = {}
        self._blocked: dict[int, OpenRecord] = {}
        self._readable, self._readable_at = 0, (-1, -1)
        self._departures = Departures()

    @property
    def position(self) -> int:
        """The next offset to read after a restart."""
        return self._positions.acknowledged

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def held_bytes(self) -> int:
        """About how much memory the open records take."""
        return self.open_bytes + _RECORD_BYTES * len(self._open)

    @property
    def blocked_count(self) -> int:
        """Of how many open records a call has failed."""
        return len(self._blocked)

    @property
    def oldest_at(self) -> Instant | None:
        """When the first open record was written to the topic; None if nothing is open, or the log has no timestamps."""
        first = next(iter(self._open.values()), None)
        return None if first is None else first.record.written_at

    @property
    def ready_count(self) -> int:
        """How many records were due when `take_due` was called, and were not taken."""
        return self._lanes.ready_count

    @property
    def leaving_bytes(self) -> int:
        """The size of what leaves with the next positions."""
        return self._departures.bytes

    @property
    def readable(self) -> int:
        """How many records may be read before what is done beyond the position could no longer be listed.

        While the position and the end of what was read stay, it may grow a little as records end, but never falls.
        """
        where = (self.position, self.read_to)
        if where != self._readable_at:
            readable = max_readable(self.position, max(self.read_to, self._done.end), self._find_done)
            # What is read for the second time is listed already.
            self._readable, self._readable_at = max(readable, self._done.end - self.read_to), where
        return self._readable

    @property
    def pause(self) -> str | None:
        """Return why nothing more of the partition is read; None if it is read on."""
        if self.open_bytes >= self._blocked_bytes:
            return f"{counted(self.open_bytes, 'byte')} behind its position are not delivered yet (blocked-bytes)"
        if self.readable < MIN_READABLE and self.read_to >= self._done.end:
            return "its position cannot list more of what is done beyond it"
        return None

    def is_done(self, offset: int) -> bool:
        """Return whether the record was done before the partition was taken over."""
        return self._done.is_done(offset)

    def read(self, records: Sequence[OpenRecord], next_offset: int, leaving: Sequence[OutputRecord] = ()) -> None:
        """Take in what was read up to `next_offset`.

        The numbers of what is `leaving` at once are the offsets of its records, plus one. Records that are not among these are
        done.
        """
        departing = [Departure(each, each.number - 1) for each in leaving]
        offsets = [each.offset for each in records] + [each.output.number - 1 for each in departing]
        self._positions.read(sorted(offsets), next_offset, 0)
        self.read_to = next_offset
        self.has_news = True
        for each in departing:
            self._departures.add(each)
        for record in records:
            self.open_bytes += record.record.size
            self._open[record.offset] = record
            self._lanes.add(record)

    def take_due(self, now: int, limit: int) -> list[OpenRecord]:
        """Return up to `limit` records that are due. Each must come back by `again` or `end`."""
        return self._lanes.take_due(now, limit)

    def find_next_due(self) -> int | None:
        """Return when the next record is due, None if nothing waits."""
        return self._lanes.find_next_due()

    def again(self, record: OpenRecord, due_at: int) -> None:
        """Let a record that was taken wait until `due_at`. It is blocked if it has an error."""
        record.due_at = due_at
        if record.error is not None:
            self._blocked[record.offset] = record
        self._lanes.push(record)

    def retry_now(self, record: OpenRecord, now: int) -> bool:
        """Let a record that waits be taken next; return False if it does not wait: a call for it is under way."""
        if not self._lanes.recall([record]):
            return False
        record.due_at = now
        self._lanes.push_first(record)
        return True

    def retry_first(self, now: int) -> None:
        """Let the first blocked record that waits be taken next, if there is one."""
        next(filter(lambda each: self.retry_now(each, now), self.blocked()), None)

    def end(self, record: OpenRecord, leaving: OutputRecord | None = None) -> None:
        """Note that the record is done.

        Its lane continues, or if something is `leaving`, when that is published: else a crash in between would let the next
        record of the lane overtake this one.
        """
        assert self._lanes.is_head(record), "the records of a lane end one after the other"
        self.open_bytes -= record.record.size
        self.has_news = True
        del self._open[record.offset]
        self._blocked.pop(record.offset, None)
        if leaving is None:
            self._positions.settle(record.offset, 0)
            self._lanes.advance(record.lane)
        else:
            self._departures.add(Departure(leaving, record.offset, record.lane))

    def pass_order(self, read_to: int, *leaving: OutputRecord) -> None:
        """Note that the orders up to `read_to` were executed; their outcomes leave with the position that says so."""
        self.orders_read_to = read_to
        for each in leaving:
            self._departures.add(Departure(each))
        self.has_news = True

    def find_open(self, offset: int) -> OpenRecord | None:
        return self._open.get(offset)

    def recall(self, records: Collection[OpenRecord]) -> list[OpenRecord]:
        """Take those of the records that wait, and return them: each must come back by `again` or `end`."""
        return self._lanes.recall(records)

    def blocked(self, limit: int | None = None) -> list[OpenRecord]:
        """Return the first `limit` open records of which a call failed, or all, in the order in which they were read."""
        offsets = sorted(self._blocked) if limit is None else nsmallest(limit, self._blocked)
        return [self._blocked[each] for each in offsets]

    def output(self) -> PartitionOutput:
        """Return what is to be published now, with the position. Call `published` afterwards."""
        departing = self._departures.take()
        for each in departing:
            if each.offset is not None:
                self._positions.settle(each.offset, 0)
        self.has_news = len(self._departures) > len(departing)
        offset, first_order = self.position, self._departures.find_first_order()
        orders_read_to = self.orders_read_to if first_order is None else first_order
        metadata = PositionMetadata(fitted(offset, self._find_done()), self.skips_all, orders_read_to).encode(offset)
        return PartitionOutput(self.partition, tuple(each.output for each in departing), Position(offset, metadata))

    def published(self, output: PartitionOutput) -> None:
        """Forget what is published, and let the lanes continue that waited for it."""
        for each in self._departures.published(len(output.records)):
            if each.lane is not None:
                self._lanes.advance(each.lane)

    def _find_done(self) -> DoneOffsets:
        return self._done.advanced(self.read_to, self._positions.unsettled)


class DirectOrderKind(StrEnum):
    """`SKIP` makes one blocked record a dead letter. `SKIP_ALL` does so with all that fails, until `BLOCK` ends that.

    `RETRY_NOW` lets a blocked record be called at once; without an offset each shut gate tries its receiver. `PAUSE` lets no call
    for the receiver begin until `RESUME`. What is for the whole receiver is given to the first partition (`ReceiverOrders`).
    """

    SKIP = "skip"
    SKIP_ALL = "skip-all"
    BLOCK = "block"
    RETRY_NOW = "retry-now"
    PAUSE = "pause"
    RESUME = "resume"


class DirectResult(StrEnum):
    DONE = "done"
    REFUSED = "refused"


class DirectOrder(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, tag="order", tag_field="is", omit_defaults=True):
    """An order. `at` is an ISO 8601 instant. `offset` is that of the blocked record in the source, for `skip` and `retry-now`."""

    id: ShortText
    order: DirectOrderKind
    by: ShortText
    because: OrderText
    at: ShortText
    offset: Annotated[int, msgspec.Meta(ge=0)] | None = None

    @property
    def is_for_receiver(self) -> bool:
        """Whether it is for the whole receiver, and not for a partition."""
        return self.order in (DirectOrderKind.PAUSE, DirectOrderKind.RESUME) or (
            self.order is DirectOrderKind.RETRY_NOW and self.offset is None
        )


class DirectOutcome(msgspec.Struct, frozen=True, rename="kebab", kw_only=True, tag="outcome", tag_field="is"):
    """The outcome of an order. `text` says what was done, or why nothing was."""

    id: str
    result: DirectResult
    text: str
    at: str


_DECODER: msgspec.json.Decoder[DirectOrder | DirectOutcome] = msgspec.json.Decoder(DirectOrder | DirectOutcome)


def encode(order: DirectOrder | DirectOutcome) -> bytes:
    return msgspec.json.encode(order)


def decode(value: bytes) -> DirectOrder | DirectOutcome:
    """Return the order or the outcome.

    Raises:
        ValueError: The record is neither; the text says why.
    """
    try:
        found = _DECODER.decode(value)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ValueError(printable(str(error))) from error
    if isinstance(found, DirectOrder) and found.order is DirectOrderKind.SKIP and found.offset is None:
        raise ValueError("skip needs offset")
    return found


def outcome_record(
    partition: Partition, number: int, order_id: str, result: DirectResult, text: str, now: Instant
) -> OutputRecord:
    """Return the record of an outcome: it goes to the partition of the order."""
    outcome = DirectOutcome(id=order_id, result=result, text=text, at=instant_text(now))
    headers = outcome_headers(order_id, result.value, partition)
    return OutputRecord(number, Channel.ORDER_OUTCOMES, order_id.encode(), headers, encode(outcome))


AT_ONCE = 500
"""How many records a poll takes, and how many may be due, or open while the receiver sleeps, before no more are read."""

MAX_HELD = 256 << 20
"""About how many bytes the open records of a receiver take in one worker, apart from one poll of each partition."""

_LEAVING_BYTES = 8 << 20


class Pressure(NamedTuple):
    """`held_bytes` is about how much memory the open records of all stages take. `now` is in ms of the event loop's clock."""

    held_bytes: int
    now: int
    is_asleep: bool


def partitions_to_pause(stage: Stage, pressure: Pressure, states: Mapping[Partition, DirectPartition]) -> list[Partition]:
    """Return the partitions of a stage that are not read on for now."""
    is_full = pressure.held_bytes > MAX_HELD

    def is_resting(state: DirectPartition) -> bool:
        if state.pause is not None or state.ready_count >= AT_ONCE or state.leaving_bytes >= _LEAVING_BYTES:
            return True
        if is_full and state.held_bytes > MAX_HELD // (4 * len(states)):
            return True
        return (pressure.is_asleep and state.open_count >= AT_ONCE) or waits_for_its_time(stage, state, pressure.now)

    return [name for name, state in states.items() if is_resting(state)]


def waits_for_its_time(stage: Stage, state: DirectPartition, now: int) -> bool:
    """Return whether a retry topic has nothing to be delivered before later: what is read behind it would wait as long."""
    return bool(stage.delay_ms) and (state.find_next_due() or 0) > now
