"""Writes `notifications.jsonl`, `dead-letters.jsonl`, the facts and the positions, so that no output record is written twice."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Event

import msgspec
from msgspec.structs import replace

from guardian.ports import Channel, OutputRecord, PartitionOutput, Polled, Position, TransportStatus
from notification_service.connectors.files.operations import (
    FileOperations,
    SystemFiles,
    make_directory,
    sync_directory,
    translated,
)
from notification_service.connectors.files.output import FACTS_FILE, Numbers, OutputFile, facts_name
from notification_service.connectors.files.positions import FoundNumbers, Positions, PositionsFile, find_number
from notification_service.connectors.files.rotated_names import find_rotated, rotated_path
from notification_service.connectors.files.scan import scan
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.source import FileSource
from notification_service.connectors.line_format import Line, encode_line
from notification_service.connectors.region_port import SinkCapabilities
from resequencer.record import OutputNumber, Partition

_LOG = logging.getLogger("resequencer.connectors")


class Rotation:
    """The rotation of one directory's outputs. `last` holds the number of the last rotated file, by the output's name."""

    def __init__(self, settings: FileSettings, files: FileOperations) -> None:
        self._settings = settings
        self._files = files
        self.last: dict[str, int] = {}

    def go_on(self, last: Mapping[str, int]) -> None:
        """Continue behind these numbers, which the stored positions hold."""
        self.last = dict(last)

    def is_full(self, output: OutputFile) -> bool:
        return self._settings.rotate_bytes is not None and output.length >= self._settings.rotate_bytes

    def rotate(self, output: OutputFile) -> None:
        """Rename the output to a number that was never used.

        Before the call, the caller has durably stored what was published; after the call, it stores the new length.
        """
        path = output.path
        with translated(path.parent):
            number = 1 + max([self.last.get(path.name, 0), *(each.number for each in find_rotated(path))])
        target = rotated_path(path, number)
        output.move_to(target)
        self.last[path.name] = number
        _LOG.info("%s was full and was renamed to %s", path, target.name)

    def trim(self) -> None:
        """Delete rotated notifications beyond those to keep. Log a file that cannot be deleted; the next call tries it again."""
        kept = self._settings.notifications_kept
        if kept is None:
            return
        path = self._settings.out_directory / f"{self._settings.notifications_name}.jsonl"
        try:
            for each in find_rotated(path)[:-kept]:
                self._files.unlink(each.path)
        except OSError as error:
            _LOG.warning("cannot delete rotated notifications beyond the last %d: %s", kept, error.strerror or error)

    def last_numbers(self, output: OutputFile) -> Numbers:
        """Return the numbers in the last rotated file: what was published just before, if no positions are stored."""
        numbers = FoundNumbers()
        with translated(output.path.parent):
            newest = find_rotated(output.path)[-1:]
        for each in newest:
            for line in scan(each.path, self._files):
                if (found := find_number(line.content)) is not None:
                    numbers.add(*found)
        return numbers.by_partition()


_NOTHING = Position(0, "")


class FileSink:
    """The writing half of the file transport.

    Several files cannot be written in one transaction. So they are written in order (notifications, dead letters, outcomes of
    orders, facts, positions), and each line has a number. Lines beyond the lengths in the positions are published too: their
    numbers are the position's `beyond`, and they are never written again, after a crash or a failure. Without `positions.json`
    all lines are beyond an empty position, which matches no commit of the storage; the takeover then repairs the positions and
    knows these numbers.

    A full output is rotated before the next append, in three steps. The published numbers are stored durably. The file is
    renamed. Lines are written to the new file only after the positions durably note that it was started. The facts are never
    rotated, for their reader knows places in the file.
    """

    capabilities = SinkCapabilities(is_transactional=False, remembers=True)
    notes: Sequence[str] = ()

    def __init__(self, settings: FileSettings, files: FileOperations) -> None:
        self._directory = settings.out_directory
        self._files = files
        self._stored = PositionsFile(self._directory / "positions.json", files)
        channels = [Channel.NOTIFICATIONS, Channel.DEAD_LETTERS, *([Channel.ORDER_OUTCOMES] if settings.has_orders else [])]
        names = dict(zip(channels, channels, strict=True)) | {Channel.NOTIFICATIONS: settings.notifications_name}
        self._outputs = {channel: OutputFile(self._directory / f"{name}.jsonl", files) for channel, name in names.items()}
        self._rotated = tuple(self._outputs.values())
        self._facts_directory = settings.facts_directory
        if self._facts_directory is not None:
            facts = OutputFile(self._facts_directory / FACTS_FILE, files, facts_name(FACTS_FILE))
            self._outputs[Channel.FACTS] = facts
        self._rotation = Rotation(settings, files)
        self._positions: dict[Partition, Position] = {}
        self._highest: dict[Partition, int] = {}
        self._is_open = False

    def position(self, partition: Partition) -> Position | None:
        """As `Transport.position`. The offset is 0 and the metadata empty where only numbers are known."""
        self._make_ready()
        found = self._positions.get(partition)
        return None if found is None else replace(found, highest=self._highest.get(partition, 0))

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """As `Transport.publish`. Records that were published before are skipped, so repeating the call is safe.

        The `beyond` of the given positions is ignored. A number in `beyond` stays there until a higher one is published.
        """
        self._make_ready()
        self._rotate()
        for channel, output in self._outputs.items():
            self._append(channel, output, outputs)
        highest = self._highest | {
            each.partition: max(self._highest.get(each.partition, 0), each.position.highest, *_numbers(each), 0)
            for each in outputs
        }
        positions = self._positions | {each.partition: self._moved(each, highest[each.partition]) for each in outputs}
        self._write(positions, highest)

    def close(self) -> None:
        for output in self._outputs.values():
            output.close()
        self._is_open = False

    def _make_ready(self) -> None:
        if not self._is_open:
            self._open()
        for output in self._outputs.values():
            self._note(output.revisit())
        self._note_begun()

    def _rotate(self) -> None:
        full = [output for output in self._rotated if self._rotation.is_full(output)]
        if full:
            # The numbers published beyond the positions must be stored first: after a rotation the file is not searched.
            self._write_durably()
            for output in full:
                self._rotation.rotate(output)
            self._note_begun()
            self._rotation.trim()

    def _note_begun(self) -> None:
        begun = [output for output in self._outputs.values() if output.is_begun_again]
        if begun:
            # The positions must note the new file durably before anything is written to it. With the length of the old file,
            # lines in the new one could not be recognised as published after a crash.
            self._write_durably()
            for output in begun:
                output.is_begun_again = False

    def _write_durably(self) -> None:
        self._write(self._positions, self._highest)
        with translated(self._directory):
            sync_directory(self._files, self._directory)

    def _open(self) -> None:
        with translated(self._directory):
            make_directory(self._files, self._directory)
        if self._facts_directory is not None:
            with translated(self._facts_directory):
                make_directory(self._files, self._facts_directory)
        found = self._stored.read()
        stored = found or Positions({}, {})
        self._positions, self._highest = dict(stored.partitions), dict(stored.highest)
        for output in self._outputs.values():
            output.before = stored.before.get(output.name, 0)
            self._note(output.open(stored.lengths.get(output.name, 0)))
            if found is None and output in self._rotated:
                self._note(self._rotation.last_numbers(output))
        self._rotation.go_on(stored.rotated)
        self._is_open = True

    def _append(self, channel: Channel, output: OutputFile, outputs: Sequence[PartitionOutput]) -> None:
        fresh = [
            (each.partition, record)
            for each in outputs
            for record in each.records
            if record.channel is channel and not self._has_left(each.partition, record.number)
        ]
        if not fresh:
            return
        output.append(b"".join(_encode(partition, record) for partition, record in fresh))
        numbers: dict[Partition, set[int]] = {}
        for partition, record in fresh:
            numbers.setdefault(partition, set()).add(record.number)
        self._note(numbers)

    def _note(self, numbers: Mapping[Partition, frozenset[int] | set[int]]) -> None:
        for partition, found in numbers.items():
            known = self._positions.get(partition, _NOTHING)
            self._positions[partition] = replace(known, beyond=known.beyond | found)

    def _has_left(self, partition: Partition, number: int) -> bool:
        return number <= self._highest.get(partition, 0) or number in self._positions.get(partition, _NOTHING).beyond

    def _moved(self, output: PartitionOutput, highest: int) -> Position:
        beyond = self._positions.get(output.partition, _NOTHING).beyond
        beyond = frozenset(number for number in beyond if number > highest)
        return Position(output.position.offset, output.position.metadata, beyond)

    def _write(self, positions: dict[Partition, Position], highest: dict[Partition, int]) -> None:
        lengths = {output.name: output.length for output in self._outputs.values()}
        before = {output.name: output.before for output in self._outputs.values() if output.before}
        self._stored.write(Positions(lengths, positions, self._rotation.last, highest, before))
        self._positions, self._highest = positions, highest


def _numbers(output: PartitionOutput) -> list[int]:
    return [each.number for each in output.records]


def _encode(partition: Partition, record: OutputRecord) -> bytes:
    number = str(OutputNumber(partition, record.number))
    if record.is_object:
        return encode_line(Line(record.value, record.key, record.headers), number=number, is_object=True)
    is_dead = record.channel is Channel.DEAD_LETTERS
    value = record.value if is_dead or record.prefix else _on_one_line(record.value)
    return encode_line(Line(value, record.key, record.headers), number=number, verbatim=is_dead)


def _on_one_line(value: bytes | None) -> bytes | None:
    """Return a JSON object that spans several lines on one line; anything else unchanged."""
    if value is None or value.find(b"\n") < 0 or not value.lstrip().startswith(b"{"):
        return value
    try:
        return msgspec.json.format(value, indent=-1)
    except (msgspec.DecodeError, RecursionError):
        return value


class FileTransport:
    """Reads records from one directory, and writes notifications and dead letters into another, as the port describes.

    `wait` sleeps for that many milliseconds, or until the event is set. Only one transport may use the two directories at a
    time; its maker holds a lock.
    """

    def __init__(self, settings: FileSettings, wait: Callable[[int, Event], object], files: FileOperations | None = None) -> None:
        files = files or SystemFiles()
        self._source = FileSource(settings, wait, files)
        self._sink = FileSink(settings, files)

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

    def wake(self) -> None:
        self._source.wake()

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        self._sink.publish(outputs)

    def close(self) -> None:
        self._source.close()
        self._sink.close()
