"""Brings the local copy of a partition's values up to what the topic holds."""

import logging
from contextlib import closing
from time import time
from uuid import UUID

from kafka import TopicPartition
from msgspec.structs import replace

from aggregation.core.processor import Slot, Stored
from aggregation.kafka.records import read_value
from aggregation.values.file import ValuesFile
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topic_reader import CommittedReader
from connectors.kafka.topics import Right, Topics
from connectors.port import TransportRefused
from domain.record import Partition

COPY_DAYS = 1
"""How long a copy can be brought up to date: after `delete.retention.ms` (24 h) the topic has forgotten what was deleted."""

_AT_ONCE = 10_000
_TOPIC_ID, _NEXT_OFFSET, _READ_AT = "topic-id", "next-offset", "read-at"
_LOG = logging.getLogger(__name__)


class Restoring:
    """Restores the values of partitions of one topic."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.topics.values

    def restore(self, number: int, file: ValuesFile) -> None:
        """Read what the topic holds beyond the copy, up to the end of what was written by now.

        All transactions that were begun before are decided then: a marker may come later than the position that it belongs to.

        Raises:
            TransportUnavailable: The brokers do not answer, or a transaction stays open.
        """
        topic_id = self._find_topic_id()
        with closing(CommittedReader(self._settings, [self._topic], {number})) as reader:
            name = TopicPartition(self._topic, number)
            ends, begins = reader.decided_ends(), reader.begins()
            start = usable_offset(file, topic_id, begins[name], ends[name])
            if start is None:
                file.clear()
                start = begins[name]
            reader.seek_only({Partition(*name): start})
            values: dict[Slot, Stored | None] = {}
            for _, records in reader.read(ends):
                values.update(found for each in records if (found := read_value(each)) is not None)
                if len(values) >= _AT_ONCE:
                    write_values(file, values)
            write_values(file, values)
            note_read(file, topic_id, ends[name])
        _LOG.info("values of %s-%d: read from offset %d to %d", self._topic, number, start, ends[name])

    def _find_topic_id(self) -> UUID:
        topics = Topics(replace(self._settings, topics=replace(self._settings.topics, input=self._topic)), Right.WRITE)
        with closing(topics):
            return topics.look().topic_id


def note_read(file: ValuesFile, topic_id: UUID | None, next_offset: int) -> None:
    """Note that the copy holds everything below the offset."""
    with file.writing() as writing:
        if topic_id is not None:
            writing.note(_TOPIC_ID, str(topic_id))
        writing.note(_NEXT_OFFSET, str(next_offset))
        writing.note(_READ_AT, str(round(time())))


def usable_offset(file: ValuesFile, topic_id: UUID, begin: int, end: int) -> int | None:
    """Return the offset from which the copy can be brought up to date; None if it cannot be, or there is none."""
    try:
        noted, offset, read_at = file.note(_TOPIC_ID), file.note(_NEXT_OFFSET), file.note(_READ_AT)
    except TransportRefused as error:
        _LOG.warning("%s", error)
        return None
    if noted != str(topic_id) or offset is None or read_at is None:
        return None
    is_young = time() - int(read_at) < COPY_DAYS * 86_400
    return int(offset) if is_young and begin <= int(offset) <= end else None


def write_values(file: ValuesFile, values: dict[Slot, Stored | None]) -> None:
    """Write the values, and forget them."""
    with file.writing() as writing:
        writing.put(values)
    values.clear()
