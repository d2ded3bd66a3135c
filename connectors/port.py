"""What a transport promises: records in, and one transaction out that carries notifications, dead letters and positions.

Source and sink are one port because their last step is one: on Kafka a single transaction holds what leaves and the
offsets that it stands on. The file transport follows the same idea in small.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from domain.errors import ResequencerError, TransientError, Withheld
from domain.record import Headers, Partition, Record


class TransportUnavailable(TransientError):
    """The source or the sink did not answer, or has no room. Nothing is lost by trying the same again."""


class NotLetIn(TransportUnavailable):
    """The brokers hang up, as they do on a wrong password, and also when they go down."""


class NothingLeft(TransportUnavailable):
    """A publication failed, and it is certain that nothing of it left: it may be tried again with less, or otherwise."""


class TransportRefused(ResequencerError):
    """What is there cannot be used (rights, damage, a position beyond the log).

    `what` names it; the text ends with the remedy. Any call but `close` may raise it.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem


class TransportWithheld(TransportRefused, Withheld):
    """A topic, a login or a right is missing; once it is there, the same again is safe."""


class PublishRefused(ResequencerError):
    """The partitions are not ours to publish for any more: their group has moved on, or a newer owner came.

    What was to leave stays pending. Poll, follow the assignment, and publish what is still held.
    """


class Channel(StrEnum):
    """Where something leaves to."""

    NOTIFICATIONS = "notifications"
    DEAD_LETTERS = "dead-letters"


class OutputRecord(msgspec.Struct, frozen=True, gc=False):
    """One record that leaves.

    `number` counts from 1 within its partition, over both channels, and never repeats for another record: a transport may
    take a number that it has seen for something that has left.
    """

    number: int
    channel: Channel
    key: bytes | None
    headers: Headers
    value: bytes


class Position(msgspec.Struct, frozen=True):
    """How far a partition was published: where reading resumes, and opaque metadata that names the storage commit it stands on.

    `beyond` holds the numbers that left after this position was written, which only a transport without transactions has.
    """

    offset: int
    metadata: str
    beyond: frozenset[int] = frozenset()


class PartitionOutput(msgspec.Struct, frozen=True):
    """What one cycle publishes of one partition: the records by ascending number, and the position they stand on."""

    partition: Partition
    records: tuple[OutputRecord, ...]
    position: Position


class Polled(msgspec.Struct, frozen=True):
    """What a poll brought.

    `records` are in the order of their partition. `next_offsets` tells where reading goes on, for each partition that
    moved; `ends` the end of each assigned partition's log, seen no later than its records: reading up to there is having
    read everything that already lay there. An end never exceeds what reading will reach without new input.

    `log_ends` is the end of each assigned partition's log as the brokers have it, seen no later than its records, whether or not
    what lies before it can be read yet; it equals `ends` where nothing is undecided. A partition that was read up to there is
    caught up. One in which a transaction hangs is not, while deadlines go by `ends` and are not held up by it.
    """

    records: tuple[Record, ...]
    next_offsets: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    log_ends: Mapping[Partition, int]


class TransportStatus(msgspec.Struct, frozen=True):
    """How a transport stands at the moment, for operators.

    `has_joined` is False until its group has said for the first time what is ours, or that nothing is left for us; where there is
    no group, it never is.
    `notes` are sentences: what is not as it should be, and goes on all the same. `misplaced` counts the records that were read
    from another partition than the usual one for their key, where there is a usual one.
    """

    has_joined: bool = True
    notes: tuple[str, ...] = ()
    misplaced: int = 0


class Transport(Protocol):
    """Records in, one transaction out. Used from one thread."""

    def standing(self) -> TransportStatus:
        """By what is known; nobody is asked."""
        ...

    def assignment(self) -> Collection[Partition]:
        """The partitions that are ours as of now; it may change between two polls.

        One that somebody else may have owned since it was sought is left out once, and not read until it is sought again:
        it has to be taken over anew.
        """
        ...

    def position(self, partition: Partition) -> Position | None:
        """What was last published of it, read afresh; None if nothing ever was.

        Raises:
            TransportUnavailable: No answer, or somebody's publication of it is not decided yet.
        """
        ...

    def source(self, partition: Partition) -> str:
        """Names the log that its offsets count in, and the group they belong to; empty where a log is never made anew."""
        ...

    def start_offset(self, partition: Partition) -> int:
        """Where reading begins when there is no position."""
        ...

    def end_offset(self, partition: Partition) -> int:
        """The end of its log as of now, in the sense of `Polled.ends`."""
        ...

    def seek(self, partition: Partition, offset: int) -> None:
        """Read this partition from `offset` on. Without it an assigned partition is not read."""
        ...

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        """Up to `max_records` records of the partitions that were sought, fairly; waits up to `timeout_ms` for the first.

        With `max_records` 0 it brings none, and of `resting` partitions none in any case; but the ends are told, and what the
        transport has to do now and then is done (a group's protocol).

        Raises:
            TransportUnavailable: The source does not answer.
            TransportRefused: Reading on is impossible without a person.
        """
        ...

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """Let it all leave, with the positions, durably, all of it or nothing that a later `position` would not tell of.

        Raises:
            NothingLeft: Nothing of this call left, nor of the same call before.
            TransportUnavailable: The sink does not answer or has no room; the same call again is safe. No other is, until it is
                known whether this one left: what it held leaves in the same words, or by the takeover of its partition.
            PublishRefused: The same call again will not help. Nothing left, or what the same call before had let leave.
        """
        ...

    def close(self) -> None: ...
