"""`resequencer archive`: moves processed input into the archive, beside a running service or without one."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import NamedTuple

from guardian.ports import Position
from guardian.takeover import find_metadata
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.storages import ARCHIVABLE, STORAGE_TYPE, storage_kind
from notification_service.configuration.transports import only_with_files
from notification_service.connectors.dead_letters.actions import Requeueing
from notification_service.connectors.files.dead_letters import ActionsFile
from notification_service.connectors.files.input_archive import InputArchive, Piece
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.positions import PositionsFile
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.source import FileSource
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import AlreadyRunning, RunLock
from notification_service.supervision.stop_signal import StopSignal
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.record import Partition
from storage.embedded.progress import Progress

_LONGEST_WAIT_MS = 5_000
_LOOK_MS = 100


class Limit(NamedTuple):
    """The offset below which a partition may be archived; `because` is the reason why the next record stays."""

    offset: int
    because: str


class ArchiveLimit:
    """Finds limits from the storage and the transport's files; the service may be running. `pause` sleeps for milliseconds.

    A lost storage is healed by reading the input again, so everything that waits in it must stay in the input. A record may be
    archived if it was handled and its notifications are durable in the output.
    """

    def __init__(self, configuration: Configuration, pause: Callable[[int], None]) -> None:
        files = SystemFiles()
        output = configuration.notification.output_directory
        self._configuration = configuration
        self._positions = PositionsFile(output / "positions.json", files)
        self._actions = ActionsFile(output, files)
        self._pause = pause

    def find(self, partition: Partition) -> Limit:
        """Return the limit as of now. It never decreases, unless a storage lost data."""
        return min(self._limits(partition), key=lambda limit: limit.offset)

    def _limits(self, partition: Partition) -> Iterator[Limit]:
        find_progress = storage_kind(self._configuration).find_progress
        if find_progress is not None:
            # The storage is read first: its output is sent if a position that is read later covers it.
            yield from self._limits_of(partition, find_progress(self._configuration, partition))
        else:
            position = self._position(partition)
            yield Limit(position.offset if position else 0, "what follows is not handled yet")
        for action in self._actions.last().values():
            if isinstance(action, Requeueing) and action.partition == partition.number:
                yield Limit(action.beyond, f"the requeue of {action.number} was interrupted: run it again to finish it")

    def _limits_of(self, partition: Partition, progress: Progress | None) -> Iterator[Limit]:
        if progress is None:
            yield Limit(0, "no record of it has been read yet")
            return
        position = self._position_once_published(partition, progress)
        if position is None:
            yield Limit(0, "the last output is not sent yet: start the service, which sends it")
            return
        yield Limit(progress.next_offset, "what follows is not read yet")
        yield Limit(position.offset, "what follows is not acknowledged yet")
        if progress.oldest_stashed is not None:
            yield Limit(progress.oldest_stashed, "the next record is stashed and waits")

    def _position_once_published(self, partition: Partition, progress: Progress) -> Position | None:
        for _ in range(_LONGEST_WAIT_MS // _LOOK_MS):
            position = self._position(partition)
            if position is None or _tells_of(position, progress.highest_number):
                return position
            self._pause(_LOOK_MS)
        return None

    def _position(self, partition: Partition) -> Position | None:
        positions = self._positions.read()
        return positions.partitions.get(partition) if positions else None


def _tells_of(position: Position, highest_number: int) -> bool:
    """Return whether the position says that all numbers up to this one were sent."""
    metadata = find_metadata(position.metadata)
    return metadata is not None and metadata.published >= highest_number


class ArchivingUnderWay(ResequencerError):
    """Another `archive` command is running."""

    def __init__(self) -> None:
        super().__init__("another `archive` command is running; try again when it has ended")


def archive(arguments: Namespace) -> ExitCode:
    """Archive, and print a line per partition: what was moved, and what keeps the rest. Nothing is ever deleted.

    Raises:
        ArchivingUnderWay: Another `archive` command is running.
        TransportUnavailable: No room, or a disk fails. Everything printed is moved; the same call again continues.
    """
    configuration = load(arguments.config, arguments.overrides)
    unsupported = only_with_files(configuration, "archive")
    if unsupported is not None:
        raise unsupported
    _refuse_other_storages(configuration)
    lock = RunLock(configuration.ingress.archive_directory)
    try:
        lock.acquire()
    except AlreadyRunning as error:
        raise ArchivingUnderWay from error
    try:
        for partition in _partitions(configuration):
            _archive(partition, configuration, as_json=arguments.json)
    finally:
        lock.release()
    return ExitCode.DONE


def _archive(partition: Partition, configuration: Configuration, *, as_json: bool) -> None:
    ingress = configuration.ingress
    limit = ArchiveLimit(configuration, StopSignal().wait).find(partition)
    file, pieces = ingress.file_directory / f"partition-{partition.number}.jsonl", list[Piece]()
    try:
        for piece in InputArchive(ingress.archive_directory, SystemFiles()).move(file, limit.offset):
            pieces.append(piece)
    finally:
        # What was moved before a failure is reported too.
        text = _as_json(partition, pieces, limit) if as_json else _as_text(partition, pieces, limit)
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def _as_text(partition: Partition, pieces: list[Piece], limit: Limit) -> str:
    moved = "nothing moved"
    if pieces:
        size, packed = sum(each.end - each.start for each in pieces), sum(each.path.stat().st_size for each in pieces)
        files = pieces[0].path if len(pieces) == 1 else f"{pieces[0].path} … {pieces[-1].path.name}"
        sizes = f"{size / 1e6:.1f} MB, packed {packed / 1e6:.1f} MB"
        moved = f"offsets {pieces[0].start} to {pieces[-1].end} moved to {files} ({sizes})"
    return f"{partition}: {moved}; from offset {limit.offset} on it stays: {limit.because}"


def _as_json(partition: Partition, pieces: list[Piece], limit: Limit) -> str:
    files = [{"file": str(each.path), "start": each.start, "end": each.end} for each in pieces]
    return json.dumps({"partition": str(partition), "moved": files, "stays_from": limit.offset, "because": limit.because})


def _partitions(configuration: Configuration) -> list[Partition]:
    ingress = configuration.ingress
    settings = FileSettings(ingress.topic, ingress.file_directory, configuration.notification.output_directory)
    return FileSource(settings, StopSignal().wait, SystemFiles()).assignment()


def _refuse_other_storages(configuration: Configuration) -> None:
    storage_type = configuration.resequencer.storage_type
    if storage_type not in ARCHIVABLE:
        works = " and ".join(ARCHIVABLE)
        problem = f"{storage_type} cannot tell what waits in it, so no input can be archived; this works with {works}"
        raise ConfigurationError(STORAGE_TYPE, problem)
