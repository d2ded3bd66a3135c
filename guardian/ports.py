"""The ports of a worker: of its transport, and of the log of orders.

A transport reads records, and publishes notifications, dead letters and positions in one transaction.

Source and sink are one port because they share the last step: on Kafka one transaction holds the output and the offsets of the
input that caused it. The file transport does the same with files.

Each partition of the input has an orders log of its own, with offsets that only ascend. An owner stores in its storage header how
far it has read (docs/decisions/0041-orders.md); no group and no position exists for the log. Outcomes leave through the
transport's channel `ORDER_OUTCOMES`, numbered as all output.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from guardian.headers import UNIT_OF_WORK
from resequencer.clock import Instant
from resequencer.errors import ResequencerError, TransientError, Withheld
from resequencer.order import Order, OrderOutcome
from resequencer.record import Headers, Partition, Record


class TransportUnavailable(TransientError):
    """The source or the sink did not answer, or has no space. Repeating the same call is safe."""


class NotLetIn(TransportUnavailable):
    """The brokers close the connection, as they do on a wrong password, and also when they shut down."""


class NotPublished(TransportUnavailable):
    """A publication failed, and certainly nothing was published. The next call may publish less, or something else."""


class TransportRefused(ResequencerError):
    """The source or the sink cannot be used until an operator acts (rights, damage, a position beyond the log).

    `what` names the file, topic or partition; the text ends with the remedy. Any call but `close` may raise this error.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem


class TransportWithheld(TransportRefused, Withheld):
    """A topic, a login or a right is missing. Once an operator has added it, the same call is safe."""


class PublishRefused(ResequencerError):
    """This worker may not publish for the partitions any more: the group has rebalanced, or another worker owns them.

    The output stays pending. The caller polls, follows the assignment, and publishes for the partitions that it still owns.
    """


class Channel(StrEnum):
    """The destination of an output record."""

    NOTIFICATIONS = "notifications"
    DEAD_LETTERS = "dead-letters"
    ORDER_OUTCOMES = "orders"
    FACTS = "facts"
    VALUES = "values"
    """The values of a store, which only a transport with a compacted topic has. An empty value deletes its key."""


class OutputRecord(msgspec.Struct, frozen=True, gc=False):
    """One record to publish.

    `number` counts from 1 within its partition, over all channels, and is never used for another record. So a transport may
    treat a number that it has seen as published. It goes to the partition of this number, with None to that of its key. With
    `is_object` the value is certainly a JSON object on one line, because the service itself encoded it. `offset` is that of the
    record that caused it, if no header of ours has it without a `prefix`; the names of our headers begin with that. `timestamp`
    is that of a record that leaves as it came; None: that of the sink.
    """

    number: int
    channel: Channel
    key: bytes | None
    headers: Headers
    value: bytes | None
    partition: int | None = None
    is_object: bool = False
    offset: int | None = None
    prefix: str = ""
    timestamp: Instant | None = None

    @property
    def lane(self) -> bytes | None:
        """The unit that the record has its order in, which its key need not name. None: it has none."""
        unit = f"{self.prefix}{UNIT_OF_WORK}"
        return next((value for name, value in reversed(self.headers) if name == unit), self.key)


class Position(msgspec.Struct, frozen=True):
    """How far a partition was published: the offset where reading resumes, and opaque metadata that names the storage commit.

    `beyond` holds the numbers published after this position was written; only a transport without transactions has any.

    `highest` of a position to publish is the number up to which everything is published once it is. A sink that notes it
    keeps the greatest, passes over numbers up to it when they come again, and returns it with its position; others return 0. Of a
    region it is the highest number that any sink has: a sink may be ahead of the position.

    `is_whole` is False if a sink that remembers has no position and another participant has one: the sink is new, or its marker
    was deleted.
    """

    offset: int
    metadata: str
    beyond: frozenset[int] = frozenset()
    highest: int = 0
    is_whole: bool = True


class PartitionOutput(msgspec.Struct, frozen=True):
    """The output of one cycle for one partition, or a portion of it: the records by ascending number, and the input position.

    `is_last`: nothing that the records up to the position have caused remains to be published after these.
    """

    partition: Partition
    records: tuple[OutputRecord, ...]
    position: Position
    is_last: bool = True


class Polled(msgspec.Struct, frozen=True):
    """The result of a poll.

    `records` keep the order of their partition. `next_offsets` holds the offset at which reading continues, for each partition
    that moved.

    `ends` holds the readable end of each assigned partition's log, looked up no later than its records. A partition read up
    to its end has no older record left. Reading always reaches this end without new input. A partition whose end is not known at
    the moment is left out: its deadlines wait.

    `log_ends` holds the end of each assigned partition's log, looked up no later than its records, readable or not. Without
    undecided transactions it equals `ends`; of an end that is not known it says that there may be more to read. A partition read
    up to it is caught up; one with an open transaction is not. Deadlines use `ends`, so an open transaction does not delay them.

    `source_states` holds, for each partition that moved, what the source has to remember beside the offset, as opaque text. It is
    committed with the units, and given back to `seek` by the next owner: what of a queue was taken, or what of a file was read.
    A topic has none.
    """

    records: tuple[Record, ...]
    next_offsets: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    log_ends: Mapping[Partition, int]
    source_states: Mapping[Partition, str] = MappingProxyType({})


class Participant(msgspec.Struct, frozen=True):
    """A source or a sink of a region, for operators. `role` is `source`, `sink`, or `source and sink` where one object is both.

    `can_replay`, `is_transactional` and `remembers`: notification_service/connectors/region_port.py; None where that is no
    question of its role. `problem` is why its last call failed, None if it did not.
    """

    name: str
    role: str
    can_replay: bool | None
    is_transactional: bool | None
    remembers: bool
    problem: str | None = None


class TransportStatus(msgspec.Struct, frozen=True):
    """The state of a transport, for operators.

    `has_joined` is False until the group has made its first assignment, which may be empty. Without a group it is always True.
    `notes` are sentences about problems that do not stop the service. `misplaced` counts the records read from another partition
    than the default partitioner gives for their key, for transports that have one. `remembers` is False for a transport that
    keeps no positions; the storage alone says then where to continue. `window` is the most records that a source without replay
    hands out before they are acknowledged: so many may come again, under new offsets. It is 0 for a source that can replay.
    `participants` are those of a transport made of several.
    """

    has_joined: bool = True
    notes: tuple[str, ...] = ()
    misplaced: int = 0
    remembers: bool = True
    window: int = 0
    participants: tuple[Participant, ...] = ()


class Transport(Protocol):
    """Reads records and publishes in transactions. Used from one thread, except for `wake`."""

    def standing(self) -> TransportStatus:
        """Return the state as last known, without any I/O."""
        ...

    def assignment(self) -> Collection[Partition]:
        """Return the partitions assigned to this worker now; they may change with every poll.

        A partition that another worker may have owned since its seek is left out once, and is not read until the next seek: it
        must be taken over again.
        """
        ...

    def position(self, partition: Partition) -> Position | None:
        """Read the last published position; None if nothing was ever published.

        Raises:
            TransportUnavailable: No answer, or a worker's publication for the partition is undecided.
        """
        ...

    def source(self, partition: Partition) -> str:
        """Return a name of the log that offsets count in, with the group; empty where a log is never recreated."""
        ...

    def start_offset(self, partition: Partition) -> int:
        """Return the offset at which reading begins without a position."""
        ...

    def end_offset(self, partition: Partition) -> int:
        """Return the current end of the partition's log, as in `Polled.ends`."""
        ...

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        """Read the partition from `offset` on. An assigned partition is not read before its first seek.

        `source_state` is that of the storage's last commit (`Polled.source_states`).
        """
        ...

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        """Return up to `max_records` records of partitions after their seek, fairly; wait up to `timeout_ms` for the first one.

        With `max_records` 0 no record is returned, and none of `resting` partitions in any case. The ends are returned all the
        same, and the transport's regular work is done (the group's protocol).

        Raises:
            TransportUnavailable: The source does not answer.
            TransportRefused: Reading cannot continue without an operator.
        """
        ...

    def wake(self) -> None:
        """End the wait of the poll under way, from any thread: it returns at once what it has, which may be nothing.

        If no poll is waiting, the next one that would wait does not. Several wakes before it returns are one. A poll that
        joins the group finishes or gives up the join first.
        """
        ...

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """Publish all records with the positions, durably. A part is published only if a later `position` reports which part.

        Raises:
            NotPublished: Nothing was published, by this call or the same call before.
            TransportUnavailable: The sink does not answer or has no space. Only the same call again is safe: until its outcome is
                known, the same output must be published unchanged, or by the takeover of its partition.
            PublishRefused: Repeating the call will not help. Nothing was published, or only by the same call before.
        """
        ...

    def close(self) -> None: ...


class OrderRecord(NamedTuple):
    """One record of an orders log, as bytes."""

    offset: int
    value: bytes


class OrderBatch(NamedTuple):
    """Records in order, and the offset at which reading continues."""

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

    def poll(self, next_offsets: Mapping[Partition, int], max_records: int) -> Mapping[Partition, OrderBatch]:
        """Return up to `max_records` records of each of these partitions, from its offset on, without partitions that have none.

        An offset before the log's start continues at the start: retention deleted the orders in between. An offset beyond the
        log's end continues at the start, too: the log was made again.
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

    def poll(self, next_offsets: Mapping[Partition, int], max_records: int) -> Mapping[Partition, OrderBatch]:  # noqa: ARG002
        return {}

    def find_without_outcome(self, partition: Partition) -> Sequence[OrderRecord]:  # noqa: ARG002 - There is no log.
        return ()

    def close(self) -> None: ...
