"""The view of a store on topics: reads the values' topic into files of its own."""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from heapq import merge
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from notification_service.aggregation.completions import Completed, Place
from notification_service.aggregation.core import Stored
from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.kafka_store import Restoring, read_value
from notification_service.aggregation.view import FileView, ValueChange
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

    def keys(self, after: str) -> Iterator[str]:
        return merge(*(each.keys(after) for each in self._views.values()))

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


_LOOKED_BACK = 1_000


def find_changes(settings: KafkaSettings, key: str, limit: int) -> Sequence[ValueChange]:
    """Return the last changes of a key and its members that the topic of values still has, the latest first.

    `settings.topics.input` is that topic. Only the last records of the key's partition are read.
    """
    topic = settings.topics.input
    with closing(CommittedReader(settings, [topic])) as reader:
        number = number_of(key, len(reader.numbers))
        reader.choose([number])
        ((name, begin),), (end,) = reader.begins().items(), reader.ends().values()
        reader.seek(name, max(begin, end - _LOOKED_BACK))
        found = deque[ValueChange](maxlen=limit)
        for _, records in reader.read({name: end}):
            for each in records:
                if (value := read_value(each)) is not None and value[0].key == key:
                    found.appendleft(ValueChange(each.timestamp, value[0].member, None if value[1] is None else value[1].body))
    return tuple(found)


class TopicCompletions:
    """A `CompletionsLog` over the topic `settings.topics.notifications`, with one reader that is kept open."""

    def __init__(self, settings: KafkaSettings, *, has_values: bool = False) -> None:
        self._has_values = has_values
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
        found = [self._completed(each) for records in reader.poll(limit).values() for each in records]
        return found, reader.positions()

    def _completed(self, fetched: Any) -> Completed:
        headers = tuple((name, value or b"") for name, value in fetched.headers)
        valued = (fetched.key, fetched.value or b"") if self._has_values else ()
        return Completed(fetched.partition, fetched.offset, fetched.offset + 1, headers, *valued)

    def _opened(self) -> CommittedReader:
        if self._reader is None:
            self._reader = CommittedReader(self._settings, [self._topic])
        return self._reader
