"""Reads `partition-0.jsonl`, `partition-1.jsonl`, … of a directory, with a fair share for each file."""

import logging
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from threading import Event

from guardian.ports import Polled, Position, TransportRefused, TransportStatus, TransportUnavailable
from notification_service.connectors.files.input_archive import ArchivedMarker
from notification_service.connectors.files.operations import FileOperations, translated
from notification_service.connectors.files.partition import PartitionFile
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.region_port import SourceCapabilities
from resequencer.record import Partition, Record

POLL_BYTES = 16 * 1024 * 1024
"""About how many bytes one poll reads at most, however many records it may return."""

_NAME = re.compile(r"partition-(0|[1-9][0-9]{0,8})\.jsonl", re.ASCII)
_BESIDE = re.compile(r"partition-[0-9]+\.archived(\.tmp)?", re.ASCII)
_LOG = logging.getLogger("resequencer.connectors")


class FileSource:
    """The reading half of the file transport.

    `wait` sleeps for that many milliseconds, or until the event is set; no other call here sleeps.
    `ignored` holds the names in the directory that are no partition files.
    """

    def __init__(self, settings: FileSettings, wait: Callable[[int, Event], object], files: FileOperations) -> None:
        self._settings = settings
        self._wait = wait
        self._woken = Event()
        self._files = files
        self._partitions: dict[Partition, PartitionFile] = {}
        self._turn = 0
        self.ignored: frozenset[str] = frozenset()

    capabilities = SourceCapabilities(can_replay=True, remembers=False)

    def standing(self) -> TransportStatus:
        return TransportStatus()

    def position(self, partition: Partition) -> Position | None:  # noqa: ARG002 - Positions are those of the sinks.
        return None

    def source(self, partition: Partition) -> str:  # noqa: ARG002 - A file's offsets count its bytes.
        return ""

    def check_owned(self, partitions: Collection[Partition]) -> None:
        """Do nothing: one process has the directory."""

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        """Do nothing: the positions of the sinks are enough."""

    def assignment(self) -> list[Partition]:
        """Return the partitions that have a file now, in ascending order."""
        return [each.partition for each in self._present()]

    def start_offset(self, partition: Partition) -> int:
        """Return the offset of the first line that is still in the file: the one behind the archived lines."""
        path = self._path(partition.number)
        offset = ArchivedMarker(path, self._files).offset()
        if offset:
            _LOG.info("%s begins at offset %d; the lines before it are in the archive and are not read again", path, offset)
        return offset

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        """Read the partition from `offset` on. `source_state` tells whether the file still is the one that was read.

        Raises:
            TransportRefused: The file is missing or was rewritten, or no line starts at `offset`.
        """
        self._find(partition).seek(offset, source_state)

    def end_offset(self, partition: Partition) -> int:
        """Return the offset after the last complete line as of now."""
        return self._find(partition).find_end()

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        """Return at once if there are records; else look again every poll interval, until some came or the time is up."""
        waited_ms = 0
        while True:
            polled = self._read(max_records, resting)
            if polled.next_offsets or waited_ms >= timeout_ms or self._woken.is_set():
                break
            pause_ms = min(self._settings.poll_interval_ms, timeout_ms - waited_ms)
            self._wait(pause_ms, self._woken)
            waited_ms += pause_ms
        if timeout_ms > 0:
            self._woken.clear()
        return polled

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        for each in self._partitions.values():
            each.close()

    def _read(self, max_records: int, resting: Collection[Partition]) -> Polled:
        present = self._present()
        # Ends come first: they must not be newer than the records, and an error here loses no record that was read.
        ends = {each.partition: each.find_end() for each in present}
        sought = [each for each in present if each.is_sought and each.partition not in resting]
        before = {each.partition: each.next_offset for each in sought}
        records = self._take_turns(sought, max_records)
        after = {each.partition: each.next_offset for each in sought}
        moved = {partition: offset for partition, offset in after.items() if offset != before[partition]}
        states = {each.partition: each.state() for each in sought if each.partition in moved}
        return Polled(tuple(records), moved, ends, ends, states)

    def _take_turns(self, sought: list[PartitionFile], max_records: int) -> list[Record]:
        records: list[Record] = []
        self._turn += 1
        first = self._turn % max(1, len(sought))
        try:
            _share(sought[first:] + sought[:first], records, max_records)
        except TransportUnavailable as error:
            if not records:
                raise
            # Records that were read are returned first; the next poll raises the error if it persists.
            _LOG.warning("a poll ended early; the records read so far are processed, and the next poll tries again: %s", error)
        return records

    def _find(self, partition: Partition) -> PartitionFile:
        found = next((each for each in self._present() if each.partition == partition), None)
        if found is None:
            raise TransportRefused(str(self._path(partition.number)), "there is no such file any more. Put it back")
        return found

    def _present(self) -> list[PartitionFile]:
        numbers, ignored = self._list()
        for name in sorted(ignored - self.ignored):
            _LOG.warning("%s is ignored: its name is not partition-N.jsonl", self._settings.in_directory / name)
        self.ignored = ignored
        present = [self._get(number) for number in sorted(numbers)]
        for gone in self._partitions.keys() - {each.partition for each in present}:
            self._partitions[gone].close()
        return present

    def _list(self) -> tuple[set[int], frozenset[str]]:
        return _listed(self._settings.in_directory)

    def _get(self, number: int) -> PartitionFile:
        partition = Partition(self._settings.topic, number)
        if partition not in self._partitions:
            self._partitions[partition] = PartitionFile(partition, self._path(number), self._settings, self._files)
        return self._partitions[partition]

    def _path(self, number: int) -> Path:
        return self._settings.in_directory / f"partition-{number}.jsonl"


def partition_numbers(directory: Path) -> list[int]:
    """Return the numbers of the partition files in a directory, ascending; none if there is no such directory.

    Raises:
        TransportUnavailable: The directory cannot be read.
    """
    return sorted(_listed(directory)[0])


def _listed(directory: Path) -> tuple[set[int], frozenset[str]]:
    """The numbers of the partition files, and the names of files that are something else."""
    numbers, ignored = set(), set()
    with translated(directory):
        for entry in _entries(directory):
            match = _NAME.fullmatch(entry.name)
            if match and entry.is_file():
                numbers.add(int(match[1]))
            elif not _BESIDE.fullmatch(entry.name):
                ignored.add(entry.name)
    return numbers, frozenset(ignored)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        directory.mkdir(parents=True, exist_ok=True)
        return []


def _share(files: list[PartitionFile], records: list[Record], max_records: int) -> None:
    """Take a share from each file, and again from those that have more, until the room is used up or no record is left."""
    room_bytes = POLL_BYTES
    while files and len(records) < max_records and room_bytes > 0:
        share = max(1, (max_records - len(records)) // len(files))
        budget_bytes = max(1, room_bytes // len(files))
        more = []
        for each in files:
            if len(records) == max_records:
                break
            passed = each.take(records, min(share, max_records - len(records)), budget_bytes)
            room_bytes -= passed
            if passed:
                more.append(each)
        files = more
