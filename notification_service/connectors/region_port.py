"""The two halves of a transport whose input and output are of different kinds: a source, and one or several sinks.

They are the participants of a region (docs/regions.md). `notification_service/connectors/region_transport.py` makes a transport
of them. What a participant can do is data, so that `check` can refuse what it cannot.

Such a sink knows nothing after a reset, and sends again. But a call that is made again, as while another sink does not answer,
must not send everything again each time.

A notification becomes a dead letter. A dead letter is cut: first its value, then all that it does not need.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from guardian.headers import (
    DEAD_LETTER_AT,
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_VALUE_LENGTH,
    POSSIBLE_DUPLICATE,
    caused_by,
    cut_headers,
    dead_letter_headers,
    mark_of_dead_letter,
)
from guardian.ports import Channel, OutputRecord, PartitionOutput, Polled, Position, TransportStatus
from notification_service.connectors.kafka.core.records import BEGINNING_BYTES
from notification_service.connectors.line_format import Defect, Line, decode_line
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Cut, Partition


class SourceCapabilities(msgspec.Struct, frozen=True):
    """What a source can do.

    `can_replay`: it can be read again from an offset, so a storage that has lost commits can be healed from it. `remembers`: it
    keeps the position that was acknowledged, with its metadata. `window` is for a source that cannot replay: how many records it
    hands out before they are acknowledged.
    """

    can_replay: bool
    remembers: bool
    window: int = 0


class SinkCapabilities(msgspec.Struct, frozen=True):
    """What a sink can do.

    `is_transactional`: the records of one partition and its position leave together or not at all. `remembers`: it keeps the
    position that was published with the records, and passes over a record that comes again. A sink that does not remember
    sends a record again after a reset: at least once.
    """

    is_transactional: bool
    remembers: bool


class Source(Protocol):
    """Reads records. The calls are those of `Transport`, except `acknowledge`. Used from one thread, except for `wake`."""

    @property
    def capabilities(self) -> SourceCapabilities: ...

    def standing(self) -> TransportStatus: ...

    def assignment(self) -> Collection[Partition]: ...

    def position(self, partition: Partition) -> Position | None:
        """Read the last acknowledged position, with its metadata; None without one, and for a source that does not remember."""
        ...

    def source(self, partition: Partition) -> str: ...

    def start_offset(self, partition: Partition) -> int: ...

    def end_offset(self, partition: Partition) -> int: ...

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None: ...

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled: ...

    def wake(self) -> None: ...

    def check_owned(self, partitions: Collection[Partition]) -> None:
        """Check that these partitions are assigned to this worker as of its last poll.

        Raises:
            PublishRefused: One is not. Nothing may be sent for it.
        """
        ...

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        """Acknowledge all records before these positions, durably. Called once every sink has their output.

        Repeating the call is safe. A source that remembers keeps the metadata.

        Raises:
            TransportUnavailable: The source does not answer; the positions may be acknowledged.
            PublishRefused: The worker does not own a partition any more; what is not acknowledged comes again to its owner.
        """
        ...

    def close(self) -> None: ...


class Sink(Protocol):
    """Sends output records. Used from one thread."""

    @property
    def capabilities(self) -> SinkCapabilities: ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for an operator about problems that do not stop the service."""
        ...

    def position(self, partition: Partition) -> Position | None:
        """Read the last position that was published through this sink, and the highest number; None if nothing ever was.

        The call also fences: from then on, an earlier owner's publications through this sink are refused. A sink that does not
        remember returns None.

        Raises:
            TransportUnavailable: No answer, or an earlier owner's publication is undecided.
        """
        ...

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """Send all records, and keep the positions with them, durably. Those that this sink has published are passed over.

        Returns when every record is confirmed. Channels that the sink does not have are passed over.

        Raises: as `Transport.publish`.
        """
        ...

    def close(self) -> None: ...


class Numbered(NamedTuple):
    """A record of a partition."""

    partition: Partition
    record: OutputRecord


class Published:
    """The numbers that were published since the partition was taken over."""

    def __init__(self) -> None:
        self._highest: dict[Partition, int] = {}

    def forget(self, partition: Partition) -> None:
        """Forget a partition at its takeover: its numbers between two takeovers are not known."""
        self._highest.pop(partition, None)

    def remaining(self, outputs: Sequence[PartitionOutput]) -> list[Numbered]:
        """Return the records that were not published yet, in their order."""
        return [
            Numbered(output.partition, record)
            for output in outputs
            for record in output.records
            if record.number > self._highest.get(output.partition, 0)
        ]

    def note(self, sent: Sequence[Numbered]) -> None:
        """Note that these were published: the first of the remaining ones, in their order."""
        for partition, record in sent:
            self._highest[partition] = record.number


_BYTES = 8


class Repeats:
    """What came. A record comes again with the same key, headers and value, but a dead letter may tell another instant.

    `count` is how many came again. It takes about 60 bytes of memory for each record.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self.count = 0

    def take(self, line: Line) -> bool:
        """Remember the record, and return whether it came for the first time."""
        digest = _digest(line)
        if digest in self._seen:
            self.count += 1
            return False
        self._seen.add(digest)
        return True

    def read(self, file: Path) -> None:
        """Remember all records of a file."""
        if file.exists():
            with file.open("rb") as lines:
                for each in lines:
                    line = decode_line(each)
                    if not isinstance(line, Defect):
                        self._seen.add(_digest(line))


def _digest(line: Line) -> int:
    headers = tuple(each for each in line.headers if each[0] != DEAD_LETTER_AT)
    return int.from_bytes(blake2b(repr((line.key, headers, line.value)).encode(), digest_size=_BYTES).digest())


def smaller(record: OutputRecord, problem: str, now: Instant) -> Iterator[OutputRecord]:
    """Yield ever smaller records to send under the number of this one. `problem` is why the broker refuses it."""
    dead_letter = record
    if record.channel is Channel.NOTIFICATIONS:
        ours = dead_letter_headers(DeadLetterReason.TOO_LARGE, problem, caused_by(record.headers, record.prefix), now)
        headers = (*record.headers, *ours, *mark_of_dead_letter(record.headers, record.prefix))
        dead_letter = OutputRecord(record.number, Channel.DEAD_LETTERS, record.key, headers, record.value)
        yield dead_letter
    elif record.channel is not Channel.DEAD_LETTERS:
        return
    headers, value = dead_letter.headers, dead_letter.value or b""
    if all(name != DEAD_LETTER_VALUE_LENGTH for name, _ in headers):
        headers = (*headers, *cut_headers(Cut(len(value), sha256(value).hexdigest())))
    yield OutputRecord(dead_letter.number, dead_letter.channel, dead_letter.key, headers, value[:BEGINNING_BYTES])
    needed = tuple(
        (name, value[:200]) for name, value in headers if name.startswith(DEAD_LETTER_PREFIX) or name == POSSIBLE_DUPLICATE
    )
    yield OutputRecord(dead_letter.number, dead_letter.channel, None, needed, b"")


def find_fitting(record: OutputRecord, find_problem: Callable[[OutputRecord], str | None], now: Instant) -> OutputRecord | None:
    """Return the record, or the first of ever smaller ones, in which no problem is found; None if there is none."""
    problem = find_problem(record)
    if problem is None:
        return record
    return next((each for each in smaller(record, problem, now) if find_problem(each) is None), None)
