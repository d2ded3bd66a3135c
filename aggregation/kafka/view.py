"""The view of a store on topics: reads the values' topic into files of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kafka.partitioner.default import murmur2

from aggregation.core.processor import Slot, Stored
from aggregation.kafka.restoring import Restoring
from aggregation.values.file import ValuesFile
from aggregation.view import FileView
from connectors.kafka.settings import KafkaSettings


class TopicView:
    """`directory` is this view's alone. What was read before is not read again."""

    def __init__(self, settings: KafkaSettings, directory: Path, partitions: int) -> None:
        self._restoring = Restoring(settings)
        self._files = {number: ValuesFile(directory / f"partition-{number}.db", is_copy=True) for number in range(partitions)}
        self._views = {number: FileView(file) for number, file in self._files.items()}

    def refresh(self, key: str | None = None) -> None:
        for number in self._files if key is None else [self._number(key)]:
            self._restoring.restore(number, self._files[number])

    def find(self, key: str) -> Stored | None:
        return self._files[self._number(key)].find(Slot(key))

    def heads(self) -> Iterator[tuple[str, bytes]]:
        for each in self._views.values():
            yield from each.heads()

    def members(self, key: str, after: str, most: int) -> Sequence[tuple[str, bytes]]:
        return self._views[self._number(key)].members(key, after, most)

    def close(self) -> None:
        self._restoring.close()
        for each in self._views.values():
            each.close()

    def _number(self, key: str) -> int:
        """Return the partition of a key, as Kafka's default partitioner gives it."""
        return int(murmur2(key.encode()) & 0x7FFFFFFF) % len(self._files)
