"""Keeps copies of all partitions of values up to date with one reader, for views that look again and again."""

from collections.abc import Mapping
from contextlib import closing
from time import monotonic
from uuid import UUID

from kafka import TopicPartition
from msgspec.structs import replace

from aggregation.core.processor import Slot, Stored
from aggregation.kafka.records import read_value
from aggregation.kafka.restoring import note_read, usable_offset, write_values
from aggregation.values.file import ValuesFile
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topic_reader import CommittedReader
from connectors.kafka.topics import Right, Topics
from domain.record import Partition

_LOOK_SECONDS = 60.0
"""How often it is checked whether the topic was deleted and made anew."""

_AT_ONCE = 10_000


class Following:
    """Follows the topic `settings.topics.values`. Unlike a worker's restoring it does not wait for open transactions."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics.values
        self._settings = replace(settings, topics=replace(settings.topics, input=self._topic))
        self._reader: CommittedReader | None = None
        self._topic_id: UUID | None = None
        self._look_at = 0.0
        self._noted: dict[int, int] = {}

    def follow(self, files: Mapping[int, ValuesFile]) -> None:
        """Read what was decided since the last call. `files` are the copies, by partition, of all partitions.

        Raises:
            TransportUnavailable, TransportRefused: The topic cannot be read; the copies are as far as they are.
        """
        try:
            self._follow(files)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _follow(self, files: Mapping[int, ValuesFile]) -> None:
        reader = self._looked(files)
        ends = {name: end for name, end in reader.ends().items() if name.partition in files}
        values: dict[int, dict[Slot, Stored | None]] = {number: {} for number in files}
        for name, records in reader.read(ends):
            found = values[name.partition]
            found.update(value for each in records if (value := read_value(each)) is not None)
            if len(found) >= _AT_ONCE:
                write_values(files[name.partition], found)
        for name, end in ends.items():
            number = name.partition
            if values[number]:
                write_values(files[number], values[number])
            if self._noted.get(number) != end:
                note_read(files[number], self._topic_id, end)
                self._noted[number] = end

    def _looked(self, files: Mapping[int, ValuesFile]) -> CommittedReader:
        if self._reader is not None and monotonic() < self._look_at:
            return self._reader
        self.close()
        self._reader = reader = CommittedReader(self._settings, [self._topic], set(files))
        with closing(Topics(self._settings, Right.READ)) as topics:
            self._topic_id = topics.look().topic_id
        begins, ends, starts = reader.begins(), reader.ends(), {}
        for number, file in files.items():
            name = TopicPartition(self._topic, number)
            start = usable_offset(file, self._topic_id, begins[name], ends[name])
            if start is None:
                file.clear()
                start = begins[name]
            starts[Partition(*name)] = start
        reader.seek_only(starts)
        self._look_at = monotonic() + _LOOK_SECONDS
        self._noted = {}
        return reader
