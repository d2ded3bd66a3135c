"""A partition of this worker, and how it is taken over."""

import asyncio
import logging
from collections.abc import Callable
from typing import NamedTuple

from guardian.done_offsets import DoneOffsets
from guardian.ports import OrderSource, OutputRecord, PartitionOutput, Position, Transport, TransportRefused
from notification_service.delivery.direct.core.open_record import OpenRecord
from notification_service.delivery.direct.core.partition import DirectPartition
from notification_service.delivery.direct.core.position_metadata import PositionMetadata, find_metadata
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.core.stages import Stage
from notification_service.delivery.direct.order_executor import OrderExecutor
from notification_service.delivery.direct.reading import Reading
from resequencer.clock import Clock
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Partition

_LOG = logging.getLogger("resequencer.delivery")
Letter = Callable[[OpenRecord, DeadLetterReason, str], OutputRecord]


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

    def __init__(self, stage: Stage, gate: SharedGate, clock: Clock, letter: Letter) -> None:
        self._stage, self._gate, self._clock, self._letter = stage, gate, clock, letter

    def take(self, clients: StageClients, partition: Partition, now: int, before: Owned | None) -> Owned:
        """Return the partition as its position says; reading goes on there.

        `before` is what this worker knew of it before its clients were made anew. It goes on, with its waits and attempts, if no
        other worker has moved the position since.

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
        ordered = None if orders_end is None else OrderExecutor(state, self._letter, self._clock, settled_at)
        return Owned(state, Reading(self._stage, self._gate, self._clock, source), ordered, position)


def _goes_on(before: Owned, position: Position | None) -> bool:
    """Return whether the position is the one that this worker knows. Then what it attempted has left, or not."""
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
