"""The view of a store on topics: reads the values' topic into files of its own."""

from collections.abc import Collection, Iterator, Sequence
from heapq import merge
from pathlib import Path

from msgspec.structs import replace

from notification_service.aggregation.completions import Completed, Place
from notification_service.aggregation.core import Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka_store import Restoring
from notification_service.aggregation.view import FileView
from notification_service.connectors.kafka.producer import partition_of
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from resequencer.clock import SteadyClock

_PREFIX, _SUFFIX = "partition-", ".db"


class CopiedView:
    """Reads the files that a `TopicView` keeps in `directory`, as they are; `refresh` does nothing.

    Any thread and process may have one. Without `partitions` it reads the files that are there.
    """

    def __init__(self, directory: Path, partitions: int | None = None) -> None:
        count = _count_of(directory) if partitions is None else partitions
        self._views = {number: FileView(ValuesFile(_file_of(directory, number), is_copy=True)) for number in range(count)}

    def refresh(self, key: str | None = None) -> None:
        """Do nothing."""

    def take_changed(self) -> Collection[str] | None:
        return None

    def find(self, key: str) -> Stored | None:
        return self._views[number_of(key, len(self._views))].find(key) if self._views else None

    def heads(self) -> Iterator[tuple[str, bytes]]:
        return merge(*(each.heads() for each in self._views.values()))

    def members(self, key: str, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        return self._views[number_of(key, len(self._views))].members(key, after, limit) if self._views else ()

    def close(self) -> None:
        for each in self._views.values():
            each.close()


class TopicView(CopiedView):
    """`directory` is this view's alone. What was read before is not read again. A jump does not move `clock` at once."""

    def __init__(self, settings: KafkaSettings, directory: Path, partitions: int, clock: SteadyClock) -> None:
        super().__init__(directory, partitions)
        self._restoring = Restoring(settings, clock)
        self._files = {number: ValuesFile(_file_of(directory, number), is_copy=True) for number in range(partitions)}

    def refresh(self, key: str | None = None) -> None:
        for number in self._files if key is None else [number_of(key, len(self._files))]:
            self._restoring.restore(number, self._files[number])

    def take_changed(self) -> Collection[str] | None:
        found = [each.take_changed() for each in self._files.values()]
        known = [each for each in found if each is not None]
        return {key for each in known for key in each} if len(known) == len(found) else None

    def close(self) -> None:
        self._restoring.close()
        for file in self._files.values():
            file.close()
        super().close()


def number_of(key: str, partitions: int) -> int:
    """Return the partition of a key, as Kafka's default partitioner gives it."""
    return partition_of(key.encode(), partitions)


def _file_of(directory: Path, number: int) -> Path:
    return directory / f"{_PREFIX}{number}{_SUFFIX}"


def _count_of(directory: Path) -> int:
    names = [each.name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for each in directory.glob(f"{_PREFIX}*{_SUFFIX}")]
    return 1 + max((int(each) for each in names if each.isdigit()), default=-1)


class TopicCompletions:
    """A `CompletionsLog` over the topic `settings.topics.notifications`, with one reader that is kept open."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._topic = settings.topics.notifications
        self._settings = replace(settings, topics=replace(settings.topics, input=self._topic))
        self._reader: CommittedReader | None = None

    def begins(self) -> Place:
        return {name.partition: offset for name, offset in self._opened().begins().items()}

    def ends(self) -> Place:
        return {name.partition: offset for name, offset in self._opened().ends().items()}

    def read(self, at: Place, limit: int) -> tuple[list[Completed], Place]:
        try:
            return self._read(at, limit)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _read(self, at: Place, limit: int) -> tuple[list[Completed], Place]:
        reader = self._opened()
        reader.follow({number: at[number] for number in reader.numbers if number in at})
        found = [
            Completed(name.partition, each.offset, each.offset + 1, tuple((key, value or b"") for key, value in each.headers))
            for name, records in reader.poll(limit).items()
            for each in records
        ]
        return found, reader.positions()

    def _opened(self) -> CommittedReader:
        if self._reader is None:
            self._reader = CommittedReader(self._settings, [self._topic])
        return self._reader
