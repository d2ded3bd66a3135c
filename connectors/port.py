"""The transport's port: reads records, and publishes notifications, dead letters and positions in one transaction.

Source and sink are one port because they share the last step: on Kafka one transaction holds the output and the offsets of the
input that caused it. The file transport does the same with files.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import msgspec

from domain.errors import Damaged, ResequencerError, TransientError, Withheld
from domain.record import Headers, Partition, Record


class TransportUnavailable(TransientError):
    """The source or the sink did not answer, or has no space. Repeating the same call is safe."""


class NotLetIn(TransportUnavailable):
    """The brokers close the connection, as they do on a wrong password, and also when they shut down."""


class NothingLeft(TransportUnavailable):
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


class TransportDamaged(TransportRefused, Damaged):
    """A file of the source or the sink was cut, edited or replaced."""


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
    treat a number that it has seen as published. It goes to the partition of this number, with None to that of its key.
    """

    number: int
    channel: Channel
    key: bytes | None
    headers: Headers
    value: bytes
    partition: int | None = None


class Position(msgspec.Struct, frozen=True):
    """How far a partition was published: the offset where reading resumes, and opaque metadata that names the storage commit.

    `beyond` holds the numbers published after this position was written; only a transport without transactions has any.

    `highest` is the highest number that has left through a sink, 0 if the sink does not note it. In a region, a sink may be ahead
    of the position: it keeps what it has, and passes over it when it comes again.
    """

    offset: int
    metadata: str
    beyond: frozenset[int] = frozenset()
    highest: int = 0


class PartitionOutput(msgspec.Struct, frozen=True):
    """The output of one cycle for one partition: the records by ascending number, and the input position they result from."""

    partition: Partition
    records: tuple[OutputRecord, ...]
    position: Position


class Polled(msgspec.Struct, frozen=True):
    """The result of a poll.

    `records` keep the order of their partition. `next_offsets` holds the offset at which reading continues, for each partition
    that moved.

    `ends` holds the readable end of each assigned partition's log, looked up no later than its records. A partition read up
    to its end has no older record left. Reading always reaches this end without new input.

    `log_ends` holds the end of each assigned partition's log, looked up no later than its records, readable or not. Without
    undecided transactions it equals `ends`. A partition read up to it is caught up; one with an open transaction is not.
    Deadlines use `ends`, so an open transaction does not delay them.

    `source_states` holds, for each partition that moved, what the source has to remember beside the offset, as opaque text. It is
    committed with the units, and given back to `seek` by the next owner. A source that can replay from an offset has none.
    """

    records: tuple[Record, ...]
    next_offsets: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    log_ends: Mapping[Partition, int]
    source_states: Mapping[Partition, str] = MappingProxyType({})


class Participant(msgspec.Struct, frozen=True):
    """The source or a sink of a region, for operators: `source`, `output`, or the name of a sink.

    `abilities` are words such as `replays` and `remembers`. `has_failed`: the last call for it failed.
    """

    name: str
    abilities: tuple[str, ...]
    has_failed: bool = False


TRANSACTIONAL = (Participant("source", ("replays", "remembers")), Participant("output", ("one transaction", "remembers")))
"""The participants of a transport that publishes records and positions in one transaction."""


class TransportStatus(msgspec.Struct, frozen=True):
    """The state of a transport, for operators.

    `has_joined` is False until the group has made its first assignment, which may be empty. Without a group it is always True.
    `notes` are sentences about problems that do not stop the service. `misplaced` counts the records read from another partition
    than the default partitioner gives for their key, for transports that have one. `remembers` is False for a transport that
    keeps no positions; the storage alone says then where to go on. `participants` are the source and the sinks.
    """

    has_joined: bool = True
    notes: tuple[str, ...] = ()
    misplaced: int = 0
    remembers: bool = True
    participants: tuple[Participant, ...] = TRANSACTIONAL


class Transport(Protocol):
    """Reads records and publishes in transactions. Used from one thread."""

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
            TransportRefused: Reading cannot go on without an operator.
        """
        ...

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """Publish all records with the positions, durably. A part is published only if a later `position` reports which part.

        Raises:
            NothingLeft: Nothing was published, by this call or the same call before.
            TransportUnavailable: The sink does not answer or has no space. Only the same call again is safe: until its outcome is
                known, the same output must be published unchanged, or by the takeover of its partition.
            PublishRefused: Repeating the call will not help. Nothing was published, or only by the same call before.
        """
        ...

    def close(self) -> None: ...
