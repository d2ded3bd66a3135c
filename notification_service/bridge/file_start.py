"""The partition files of the file source as a replayable start: lines are appended and synced."""

import fcntl
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.files.operations import (
    FileOperations,
    find_end_of_lines,
    make_directory,
    sync_directory,
    translated,
    write_all,
)
from notification_service.connectors.line_format import Line, encode_line, partition_of

_NAME = "partition-{}.jsonl"


class FileStart:
    """An open start. It is the only writer of the directory: another one is refused.

    It cuts off a line that was half written at a crash. It appends to the files that are there, to each key's one
    by the checksum of the key. An empty directory gets one file. The files stay open, so a directory with other ones than before
    wants a restart.

    Raises of the constructor:
        TransportUnavailable: The disk fails, or is full.
        TransportRefused: Another process writes the files, one is missing among them, or a right is.
    """

    def __init__(self, directory: Path, files: FileOperations) -> None:
        self._directory, self._files = directory, files
        self._descriptors: list[int] = []
        try:
            with translated(directory):
                make_directory(files, directory)
                for number in range(self._count()):
                    self._open(directory / _NAME.format(number))
                sync_directory(files, directory)
        except BaseException:
            self.close()
            raise

    def append(self, lines: Sequence[Line]) -> None:
        """Append the lines and sync the files. Raises: as notification_service/bridge/runner.py describes."""
        parts: defaultdict[int, list[bytes]] = defaultdict(list)
        for line in lines:
            parts[partition_of(line.key or b"", len(self._descriptors))].append(encode_line(line))
        for number, encoded in parts.items():
            with translated(self._directory / _NAME.format(number)):
                self._append(self._descriptors[number], b"".join(encoded))

    def close(self) -> None:
        descriptors, self._descriptors = self._descriptors, []
        for each in descriptors:
            os.close(each)

    def _append(self, descriptor: int, data: bytes) -> None:
        try:
            write_all(self._files, descriptor, data)
            self._files.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                # The service may have read whole lines already, so they stay.
                self._cut_torn_line(descriptor)
            raise

    def _count(self) -> int:
        """Return the number of files, at least 1.

        Raises:
            TransportRefused: One is missing: its units would get into another partition.
        """
        found = {each.name for each in self._directory.iterdir() if each.match(_NAME.format("*"))}
        expected = [_NAME.format(number) for number in range(max(1, len(found)))]
        if found and (missing := [each for each in expected if each not in found]):
            problem = f"has no {missing[0]}, but {max(found)}. Put it back, or make an empty file of that name"
            raise TransportRefused(str(self._directory), problem)
        return len(expected)

    def _open(self, path: Path) -> None:
        descriptor = self._files.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TransportUnavailable(f"{path}: another bridge writes it; stop it, or give each its own directory") from None
        self._cut_torn_line(descriptor)

    def _cut_torn_line(self, descriptor: int) -> None:
        """Cut off what is behind the last line. It was never acknowledged."""
        size = os.fstat(descriptor).st_size
        end = find_end_of_lines(self._files, descriptor, size)
        if end < size:
            self._files.truncate(descriptor, end)
            self._files.fsync(descriptor)
