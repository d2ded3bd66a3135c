"""`resequencer archive`: moves processed input into the archive, beside a running service or without one."""

import json
import sys
from argparse import Namespace
from time import sleep

from notification_service.commands.archive.limit import ArchiveLimit, Limit
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.kinds import only_with_files
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Resequencers, StorageType
from notification_service.connectors.files.input_archive import InputArchive, Piece
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.source import FileSource
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.run_lock import AlreadyRunning, RunLock
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.record import Partition


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
    limit = ArchiveLimit(configuration, _pause).find(partition)
    file, pieces = ingress.file_directory / f"partition-{partition.number}.jsonl", list[Piece]()
    try:
        for piece in InputArchive(ingress.archive_directory, SystemFiles()).move(file, limit.offset):
            pieces.append(piece)
    finally:
        # What was moved before a failure is reported too.
        told = _as_json(partition, pieces, limit) if as_json else _as_text(partition, pieces, limit)
        sys.stdout.write(told + "\n")
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
    return FileSource(settings, _pause, SystemFiles()).assignment()


def _refuse_other_storages(configuration: Configuration) -> None:
    storage_type = configuration.resequencer.storage_type
    if storage_type not in (StorageType.NONE, StorageType.EMBEDDED):
        problem = f"{storage_type} cannot tell what waits in it, so no input can be archived; this works with embedded and none"
        raise ConfigurationError(path_of(Resequencers, "storage_type"), problem)


def _pause(milliseconds: int) -> None:
    sleep(milliseconds / 1_000)
