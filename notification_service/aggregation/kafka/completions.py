"""Reads the completions of a store on topics."""

from kafka import TopicPartition
from msgspec.structs import replace

from notification_service.aggregation.completions import Completed, Place
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader


class TopicCompletions:
    """A `CompletionsLog` over the topic `settings.topics.notifications`, with one reader that is kept open."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics.notifications
        self._settings = replace(settings, topics=replace(settings.topics, input=self._topic))
        self._reader: CommittedReader | None = None
        self._at: dict[int, int] = {}

    def begins(self) -> Place:
        return {name.partition: offset for name, offset in self._opened().begins().items()}

    def ends(self) -> Place:
        return {name.partition: offset for name, offset in self._opened().ends().items()}

    def read(self, at: Place, most: int) -> tuple[list[Completed], Place]:
        try:
            return self._read(at, most)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        reader, self._reader, self._at = self._reader, None, {}
        if reader is not None:
            reader.close()

    def _read(self, at: Place, most: int) -> tuple[list[Completed], Place]:
        reader = self._opened()
        wanted = {number: at[number] for number in reader.numbers if number in at}
        if wanted != self._at:
            begins, ends = self.begins(), self.ends()
            reader.read_only([self._name(number) for number in wanted])
            for number, offset in wanted.items():
                reader.seek(self._name(number), min(max(offset, begins[number]), ends[number]))
        found = [
            Completed(name.partition, each.offset, each.offset + 1, tuple((key, value or b"") for key, value in each.headers))
            for name, records in reader.poll(most).items()
            for each in records
        ]
        self._at = {number: reader.position(self._name(number)) for number in wanted}
        return found, dict(self._at)

    def _name(self, number: int) -> TopicPartition:
        return TopicPartition(self._topic, number)

    def _opened(self) -> CommittedReader:
        if self._reader is None:
            self._reader = CommittedReader(self._settings, [self._topic])
        return self._reader
