"""The transport over files (docs/contract.md, section 10)."""

from collections.abc import Callable, Collection, Sequence

from guardian.ports import PartitionOutput, Polled, Position, TransportStatus
from notification_service.connectors.files.operations import FileOperations, SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileSink
from notification_service.connectors.files.source import FileSource
from resequencer.record import Partition


class FileTransport:
    """Reads records from one directory, and writes notifications and dead letters into another, as the port describes.

    `wait` sleeps for that many milliseconds. Only one transport may use the two directories at a time; its maker holds a lock.
    """

    def __init__(self, settings: FileSettings, wait: Callable[[int], None], files: FileOperations | None = None) -> None:
        files = files or SystemFiles()
        self._source = FileSource(settings, wait, files)
        self._sink = FileSink(settings, files)

    @property
    def ignored_files(self) -> frozenset[str]:
        """The names in the input directory that are no partition files."""
        return self._source.ignored

    def standing(self) -> TransportStatus:
        return TransportStatus()

    def assignment(self) -> list[Partition]:
        return self._source.assignment()

    def position(self, partition: Partition) -> Position | None:
        return self._sink.position(partition)

    def source(self, partition: Partition) -> str:  # noqa: ARG002 - A file's offsets count its bytes.
        return ""

    def start_offset(self, partition: Partition) -> int:
        return self._source.start_offset(partition)

    def end_offset(self, partition: Partition) -> int:
        return self._source.end_offset(partition)

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        self._source.seek(partition, offset, source_state)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        return self._source.poll(max_records, timeout_ms, resting)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        self._sink.publish(outputs)

    def close(self) -> None:
        self._source.close()
        self._sink.close()
