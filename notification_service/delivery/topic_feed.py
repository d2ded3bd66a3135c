"""Notifications from a topic of Kafka, whose decided records are read without a group."""

import logging
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

import msgspec

from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.connectors.kafka.topics import Topic
from notification_service.delivery.core.jobs import Item
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.feed import MAX_BYTES, make_item, select_items
from notification_service.delivery.ledger.intake import ACCEPTED, Portion
from notification_service.delivery.settings import Select
from resequencer.record import Origin, Partition

_LOG = logging.getLogger("resequencer.delivery")
_LOST = "lost"
"""The part whose position is how many offsets are missing: retention deleted them unread, or the brokers have lost records."""

_LOOK_SECONDS = 10.0
"""How often it is checked whether the topic has more partitions, or was deleted and created again."""


class TopicSpan(msgspec.Struct, frozen=True):
    """What a job delivers of a topic: by partition, from an offset up to another. `id` is the topic's, as hexadecimal digits."""

    id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class TopicFeed:
    """Reads a span of a topic, or without a span whatever comes. A part of the feed is a partition of a topic with its id.

    A topic of the same name that was created again has other parts. `look` returns the topic as it is now.
    """

    def __init__(
        self,
        topic: str,
        open_reader: Callable[[], CommittedReader],
        look: Callable[[], Topic],
        select: Select,
        span: TopicSpan | None = None,
    ) -> None:
        self._topic, self._open_reader, self._look, self._select, self._span = topic, open_reader, look, select, span
        self._reader: CommittedReader | None = None
        self._seen: Topic | None = None
        self._looks_at = 0.0

    def read(self, positions: Mapping[str, int], limit: int) -> Portion:
        """As `Feed.read`.

        Raises:
            JobRefused: The topic was deleted and created again since the job began.
            TransportUnavailable, TransportRefused: The topic cannot be read.
        """
        try:
            return self._read(positions, limit)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _read(self, positions: Mapping[str, int], limit: int) -> Portion:
        reader = self._looked()
        wanted = {
            number: positions.get(self._part(number), self._start(number))
            for number in reader.numbers
            if self._span is None or number in self._span.ends
        }
        log_ends = {name.partition: offset for name, offset in reader.ends().items()}
        lost = self._set_back(wanted, log_ends) + self._follow(reader, wanted, positions)
        missing = max(0, positions.get(_LOST, 0) + lost - positions.get(ACCEPTED, 0))
        noted = {part: at for part, at in ((_LOST, missing), (ACCEPTED, 0)) if at != positions.get(part, 0)}
        causes = "which retention deleted before they were read, or which the brokers have lost"
        lacks = f"{missing} offsets of {self._topic}, {causes}" if missing else None
        ends = log_ends if self._span is None else self._span.ends
        if all(wanted[number] >= ends[number] for number in wanted):
            # Also of an empty partition: what is deleted of it from now on is missing.
            noted |= {self._part(number): at for number, at in wanted.items() if at != positions.get(self._part(number))}
            return Portion([], noted, is_end=True, seals=self._span is not None, missing=missing, lacks=lacks)
        items = self._polled(reader, ends, limit)
        after = {number: min(at, ends[number]) for number, at in reader.positions().items()}
        selected = select_items(items, self._select)
        is_end = all(after[number] >= ends[number] for number in wanted)
        moved = {self._part(number): at for number, at in after.items() if at != positions.get(self._part(number))}
        seals = is_end and self._span is not None
        return Portion(selected, moved | noted, len(items) - len(selected), is_end, seals, missing=missing, lacks=lacks)

    def _polled(self, reader: CommittedReader, ends: Mapping[int, int], limit: int) -> list[Item]:
        """Poll once. Of what is beyond `MAX_BYTES` nothing is kept: it is read again.

        What lies before the span comes if the brokers have lost records, and the log ended there.
        """
        items: list[Item] = []
        size = 0
        for name, records in reader.poll(limit).items():
            part = self._part(name.partition)
            for each in records:
                if size >= MAX_BYTES:
                    reader.seek(name, each.offset)
                    break
                size += len(each.value or b"")
                if self._start(name.partition) <= each.offset < ends[name.partition]:
                    items.append(_item(each, f"{part}@{each.offset}"))
        return items

    def _looked(self) -> CommittedReader:
        """Return a reader of the topic as it was a moment ago."""
        if self._reader is not None and monotonic() < self._looks_at:
            return self._reader
        seen = self._look()
        if self._span is not None and self._span.id != seen.topic_id.hex:
            problem = "was deleted and created again since the job was started: cancel the job, and start another"
            raise JobRefused(f"topic {self._topic} {problem}")
        if seen != self._seen or self._reader is None:
            self.close()
            self._reader, self._seen = self._open_reader(), seen
        self._looks_at = monotonic() + _LOOK_SECONDS
        return self._reader

    def _set_back(self, wanted: dict[int, int], log_ends: Mapping[int, int]) -> int:
        """Continue at the end of a log that ends before what was read of it; return how many offsets are missing.

        The brokers have lost records, by an election of a replica that was behind or by a disk. Others get these offsets.
        """
        lost = 0
        for number, at in wanted.items():
            if at > log_ends[number]:
                lost += at - log_ends[number]
                problem = "%s-%d: it was to be read from offset %d, but its log ends at %d: the brokers have lost records"
                _LOG.error(problem, self._topic, number, at, log_ends[number])
                wanted[number] = log_ends[number]
        return lost

    def _follow(self, reader: CommittedReader, wanted: Mapping[int, int], positions: Mapping[str, int]) -> int:
        """Continue at these offsets; return how many of them retention has deleted since the job had to read them."""
        lost = 0
        for number, at in reader.follow(wanted).items():
            end = at if self._span is None else min(at, self._span.ends[number])
            is_ours = self._span is not None or self._part(number) in positions
            if is_ours and wanted[number] < end:
                lost += end - wanted[number]
                problem = "%s-%d: retention deleted the records from %d to %d before they were taken in for delivery"
                _LOG.error(problem, self._topic, number, wanted[number], end)
        return lost

    def _start(self, number: int) -> int:
        return 0 if self._span is None else self._span.starts.get(number, 0)

    def _part(self, number: int) -> str:
        assert self._seen is not None
        return part_of(self._seen, number)


def part_of(topic: Topic, number: int) -> str:
    """Return the name of the part that is this partition of a topic."""
    return f"{topic.topic_id.hex}/{number}"


def _item(record: Any, place: str) -> Item:
    headers = tuple((key, value or b"") for key, value in record.headers)
    origin = Origin(Partition(record.topic, record.partition), record.offset)
    return make_item(record.key, record.value or b"", headers, str(origin), place)
