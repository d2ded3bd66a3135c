"""The ports of the orders log: the owner's side, and the operators' side.

Each partition of the input has an orders log of its own, with offsets that only ascend. An owner stores in its storage header how
far it has read (docs/decisions/0041-orders.md); no group and no position exists for the log. Outcomes leave through the
transport's channel `ORDER_OUTCOMES`, numbered as all output.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from domain.clock import Instant
from domain.order import Order, OrderOutcome
from domain.record import Partition


class OrderRecord(NamedTuple):
    """One record of an orders log, as bytes."""

    offset: int
    value: bytes


class OrderBatch(NamedTuple):
    """Records in order, and the offset at which reading goes on."""

    records: tuple[OrderRecord, ...]
    next_offset: int


class OrderSource(Protocol):
    """Reads orders for the owner of partitions. Used from one thread. It never waits for new orders.

    Each method but `close` may raise:
        TransportUnavailable: The source does not answer; the call may be repeated.
        TransportRefused: It cannot be used until an operator acts.
    """

    def bounds(self, partition: Partition) -> range:
        """Return the offsets of the log, from its first record to its end. An absent log is empty and begins at 0."""
        ...

    def poll(self, next_offsets: Mapping[Partition, int], most: int) -> Mapping[Partition, OrderBatch]:
        """Return up to `most` records of each of these partitions, from its offset on. Partitions without news are left out.

        An offset before the log's start goes on at the start: retention deleted the orders in between. An offset beyond the log's
        end goes on at the start, too: the log was made anew.
        """
        ...

    def find_without_outcome(self, partition: Partition) -> Sequence[OrderRecord]:
        """Return the orders of the log, up to its end, that have no published outcome. Reads both logs, which may take long.

        Records that are no orders (proposals) are left out; unreadable ones are not.
        """
        ...

    def close(self) -> None: ...


class GivenOrder(NamedTuple):
    """An order or proposal of the log, and where it stands."""

    partition: Partition
    offset: int
    order: Order


class GivenOutcome(NamedTuple):
    """A published outcome."""

    partition: Partition
    outcome: OrderOutcome


class OrderBook(Protocol):
    """The operators' side: appends orders and reads orders and outcomes. Used from one thread.

    Each method but `close` may raise what `OrderSource` raises.
    """

    def append(self, partition: Partition, order: Order) -> int:
        """Append an order durably and return its offset.

        A call that failed may have appended it. If it is repeated, both are executed one after the other, and the second one is
        refused: what the first one did has changed the unit.
        """
        ...

    def orders(self, partitions: Collection[Partition], since: Instant) -> Sequence[GivenOrder]:
        """Return the orders and proposals of these partitions that were given at `since` or later, oldest first."""
        ...

    def outcomes(self, partitions: Collection[Partition], since: Instant) -> Sequence[GivenOutcome]:
        """Return the outcomes of these partitions that were published at `since` or later, oldest first."""
        ...

    def close(self) -> None: ...


class NoOrders:
    """The source of a service without orders."""

    def bounds(self, partition: Partition) -> range:  # noqa: ARG002 - There is no log.
        return range(0)

    def poll(self, next_offsets: Mapping[Partition, int], most: int) -> Mapping[Partition, OrderBatch]:  # noqa: ARG002
        return {}

    def find_without_outcome(self, partition: Partition) -> Sequence[OrderRecord]:  # noqa: ARG002 - There is no log.
        return ()

    def close(self) -> None: ...
