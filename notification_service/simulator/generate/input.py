"""The port through which simulated lines are written: to the files or the topic that the service reads."""

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from guardian.ports import TransportRefused
from notification_service.connectors.line_format import Defect, Line, decode_line, partition_of


class Input(AbstractContextManager["Input"], Protocol):
    """Takes whole lines as `encode_line` makes them. Appended lines are readable after the next `flush` at the latest.

    Raises:
        TransportRefused: The input cannot be written.
        TransportUnavailable: The input does not answer.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Flush what was appended, unless something has failed, and close."""
        try:
            if error is None:
                self.flush()
        finally:
            self.close()

    def partition_of(self, key: bytes) -> int:
        """Return the partition of a key's records."""
        ...

    def append(self, partition: int, line: bytes) -> None: ...

    def append_and_tell(self, partition: int, line: bytes) -> int:
        """Append a line and return its offset. May take longer than `append`."""
        ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def read_line(line: bytes) -> Line:
    """Return the record of a line. A line that is no record is a value, byte for byte."""
    read = decode_line(line.rstrip(b"\n"))
    return Line(line.rstrip(b"\n")) if isinstance(read, Defect) else read


LINES_PER_FLUSH = 500


class InputFiles(Input):
    """`partition-0.jsonl` … of a directory, which is created if missing. Lines are appended whole.

    Raises:
        TransportRefused: A file cannot be written, or ends in an incomplete line of another writer.
    """

    def __init__(self, directory: Path, partitions: int) -> None:
        self._directory = directory
        self._files: list[BinaryIO] = []
        self._offsets: list[int] = []
        self._unflushed = 0
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for number in range(partitions):
                self._open(directory / f"partition-{number}.jsonl")
        except OSError as error:
            self.close()
            raise _refused(directory, error) from error
        except TransportRefused:
            self.close()
            raise

    def partition_of(self, key: bytes) -> int:
        return partition_of(key, len(self._files))

    def append(self, partition: int, line: bytes) -> None:
        self.append_and_tell(partition, line)

    def append_and_tell(self, partition: int, line: bytes) -> int:
        """Append a line; return the byte offset at which it begins."""
        offset = self._offsets[partition]
        try:
            self._files[partition].write(line)
        except OSError as error:
            raise _refused(self._directory, error) from error
        self._offsets[partition] += len(line)
        self._unflushed += 1
        if self._unflushed >= LINES_PER_FLUSH:
            self.flush()
        return offset

    def flush(self) -> None:
        self._unflushed = 0
        try:
            for file in self._files:
                file.flush()
        except OSError as error:
            raise _refused(self._directory, error) from error

    def _open(self, path: Path) -> None:
        file = path.open("ab+")
        self._files.append(file)
        end = file.seek(0, 2)
        self._offsets.append(end)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                raise TransportRefused(str(path), "its last line has no end; complete or remove that line first")
            file.seek(0, 2)

    def close(self) -> None:
        """Close all files even if closing one fails; then raise the first failure."""
        failed = None
        for file in self._files:
            try:
                file.close()
            except OSError as error:
                failed = failed or error
        self._files = []
        if failed is not None:
            raise _refused(self._directory, failed) from failed


def _refused(directory: Path, error: OSError) -> TransportRefused:
    return TransportRefused(str(error.filename or directory), f"{error.strerror or error}; nothing more was written")
