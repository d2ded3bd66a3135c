"""A partition of this worker, and how it is taken over."""

import asyncio
import logging
from hashlib import sha256
from typing import NamedTuple

from guardian.headers import DELIVERY_ID, UNIT_OF_WORK, Way, own_texts, texts_of, way_of
from guardian.ports import OrderSource, PartitionOutput, Position, Transport, TransportRefused
from guardian.positions import DoneOffsets
from notification_service.delivery.direct.core.decision import OpenRecord, Stage
from notification_service.delivery.direct.core.partition import DirectPartition
from notification_service.delivery.direct.core.position_metadata import PositionMetadata, find_metadata
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.order_executor import MakeDeadLetter, OrderExecutor
from notification_service.delivery.feed import make_item
from notification_service.events.identifiers import find_id_flaw
from resequencer.clock import Clock
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import NO_VALUE, Partition, Record


class Flaw(Exception):
    """The record cannot be delivered."""

    def __init__(self, reason: DeadLetterReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class Reading:
    """Opens the records of one stage. `source` names the log that offsets count in."""

    def __init__(self, stage: Stage, gate: SharedGate, clock: Clock, source: str) -> None:
        self._stage, self._gate, self._clock = stage, gate, clock
        self._log = sha256(source.encode()).hexdigest()[:16]

    def open(self, record: Record, now: int) -> OpenRecord | None:
        """Return the record; None if the receiver does not get it. `now` is that of the clock that never goes back.

        Look for a flaw in it before it is delivered.
        """
        way = Way(record.origin) if self._stage.is_source else way_of(record)
        item = make_item(record.key, record.content, record.headers, str(way.origin))
        if self._stage.is_source and item.defect is None and not self._stage.receiver.select.selects(item.status, item.entity):
            return None
        return OpenRecord(
            record=record,
            way=way,
            key=item.key,
            lane=_lane_of(record),
            notification_id=item.notification_id or self._own_id(record, way),
            row=self._gate.new_row(),
            due_at=now + self._wait_ms(way),
        )

    def find_flaw(self, opened: OpenRecord) -> Flaw | None:
        """Return why the record cannot be delivered; None if it can."""
        record = opened.record
        if record.defect is not None:
            return Flaw(DeadLetterReason.UNDECODABLE, record.defect)
        if record.value is None:
            return Flaw(DeadLetterReason.UNDECODABLE, NO_VALUE)
        if record.cut is not None:
            return Flaw(DeadLetterReason.TOO_LARGE, f"its value has {record.cut.length} bytes; raise max-record-bytes")
        defect = _find_key_defect(_unit_of(record)) or make_item(record.key, b"", record.headers, "").defect
        if defect is None and (flaw := _find_own_id_flaw(opened.notification_id)) is not None:
            defect = f"the header {DELIVERY_ID} {flaw}"
        return None if defect is None else Flaw(DeadLetterReason.UNDELIVERABLE, defect)

    def _own_id(self, record: Record, way: Way) -> str:
        """Return the idempotency key of a record without an id: the same whenever, and from wherever, the record is delivered."""
        partition, offset = way.origin
        return texts_of(record.headers).get(DELIVERY_ID) or f"{self._log}-{partition.number}-{offset}"

    def _wait_ms(self, way: Way) -> int:
        if way.submitted_at is None:
            return 0
        return min(max(0, way.submitted_at + self._stage.delay_ms - self._clock.now()), self._stage.delay_ms)


def _unit_of(record: Record) -> bytes | None:
    """Return the record's key, or the unit that our header names, which nearly no record has: then no header is decoded."""
    if not any(name.endswith(UNIT_OF_WORK) for name, _ in record.headers):
        return record.key
    named = own_texts(record.headers).get(UNIT_OF_WORK)
    return record.key if named is None else named.encode()


def _lane_of(record: Record) -> int | bytes:
    """Return what the records have in common that are delivered one after the other; a record without a unit is alone."""
    unit = _unit_of(record)
    return record.origin.offset if unit is None else unit


def _find_key_defect(key: bytes | None) -> str | None:
    """Return why the key names no unit: two keys that are no text would become the same path."""
    try:
        (key or b"").decode()
    except UnicodeDecodeError as error:
        return f"the key of the record, which is the unit of work, is no UTF-8 ({error.reason} at byte {error.start})"
    return None


def _find_own_id_flaw(own_id: str) -> str | None:
    if own_id != own_id.strip():
        return "begins or ends with a space"
    return find_id_flaw(own_id)


_LOG = logging.getLogger("resequencer.delivery")


class StageClients(NamedTuple):
    """The transport of a stage, and where its orders come from; None if there are none.

    After `session_ms` without an answer of the brokers another worker may own the partitions.
    """

    transport: Transport
    orders: OrderSource | None = None
    session_ms: int = 10_000


class Owned:
    """A partition, with the calls that are under way for it. `position` is what was committed for it last, None: nothing.

    `attempted` is a commit of which it is not known whether it happened.
    """

    def __init__(
        self, state: DirectPartition, reading: Reading, ordered: OrderExecutor | None, position: Position | None
    ) -> None:
        self.state = state
        self.reading = reading
        self.ordered = ordered
        self.position = position
        self.attempted: PartitionOutput | None = None
        self.calls: set[asyncio.Task[None]] = set()
        self.log_end = state.read_to
        self.is_ours = True
        """Whether what comes of its calls still counts."""

    def give_up(self) -> list["asyncio.Task[None]"]:
        """Cancel all calls, and return them. The partition is another worker's now."""
        self.is_ours = False
        for call in self.calls:
            call.cancel()
        return list(self.calls)


class Takeover:
    """Takes partitions of one stage over. `take` is called in the transport's thread."""

    def __init__(self, stage: Stage, gate: SharedGate, clock: Clock, dead_letter: MakeDeadLetter) -> None:
        self._stage, self._gate, self._clock, self._dead_letter = stage, gate, clock, dead_letter

    def take(self, clients: StageClients, partition: Partition, now: int, before: Owned | None) -> Owned:
        """Return the partition as its position says, ready to be read from there.

        `before` is what this worker knew of it before its clients were made again. It continues, with its waits and attempts, if
        no other worker has moved the position since.

        Raises:
            TransportUnavailable: No answer; the partition can be taken over later.
            TransportRefused: It cannot be taken over until a person acts.
        """
        position = clients.transport.position(partition)
        if before is not None and _goes_on(before, position):
            clients.transport.seek(partition, before.state.read_to)
            return before
        offset = clients.transport.start_offset(partition) if position is None else position.offset
        orders_end = _find_end_of_orders(clients.orders, partition)
        if position is not None and position.metadata:
            kept = find_metadata(offset, position.metadata)
        else:
            # Orders that were given before were meant for other positions.
            kept = PositionMetadata(DoneOffsets(offset), orders_read_to=orders_end or 0)
        if kept is None:
            problem = (
                "its position holds what this version cannot read: start the version that wrote it, or set the group's position"
            )
            raise TransportRefused(str(partition), problem)
        source = clients.transport.source(partition)
        clients.transport.seek(partition, offset)
        state = DirectPartition(partition, offset, kept, self._stage.receiver.blocked_bytes)
        settled_at = now + self._stage.receiver.timeout_ms
        ordered = None if orders_end is None else OrderExecutor(state, self._gate, self._dead_letter, self._clock, settled_at)
        return Owned(state, Reading(self._stage, self._gate, self._clock, source), ordered, position)


def _goes_on(before: Owned, position: Position | None) -> bool:
    """Return whether the position is the one that this worker knows. Then what it attempted was published, or not."""
    attempted, before.attempted = before.attempted, None
    if attempted is not None and attempted.position == position:
        before.state.published(attempted)
        before.position = position
        return True
    before.state.has_news = True
    return before.position == position


def _find_end_of_orders(orders: OrderSource | None, partition: Partition) -> int | None:
    """Return the end of the partition's orders; None if it has none: the source has grown since their topic was made."""
    if orders is None:
        return None
    try:
        return orders.bounds(partition).stop
    except TransportRefused as error:
        _LOG.warning("no orders for %s until the workers are started again: %s", partition, error)
        return None
