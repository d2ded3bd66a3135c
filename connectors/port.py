"""The transport's port: reads records, and publishes notifications, dead letters and positions in one transaction.

Source and sink are one port because they share the last step: on Kafka one transaction holds the output and the offsets of the
input that caused it. The file transport does the same with files.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import msgspec

from domain.errors import ResequencerError, TransientError, Withheld
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
    `is_object` the value is certainly a JSON object on one line, because the service itself encoded it.
    """

    number: int
    channel: Channel
    key: bytes | None
    headers: Headers
    value: bytes
    partition: int | None = None
    is_object: bool = False


class Position(msgspec.Struct, frozen=True):
    """How far a partition was published: the offset where reading resumes, and opaque metadata that names the storage commit.

    `beyond` holds the numbers published after this position was written; only a transport without transactions has any.

    `highest` of a position to publish is the number up to which everything has left once it is published. A sink that notes it
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

    `is_last`: nothing that the records up to the position have caused is left to publish after these.
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

    `can_replay`, `is_transactional` and `remembers`: connectors/region/port.py; None where that is no question of its role.
    `problem` is why its last call failed, None if it did not.
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
    keeps no positions; the storage alone says then where to go on. `window` is the most records that a source without replay
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
