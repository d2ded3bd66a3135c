"""The real sink of files, on a directory in memory; each step of its writing may fail, or be the last."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from harness.service_under_test import TOPIC
from simulation.regions.sinks import Left

from guardian.ports import Channel, OutputRecord
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.positions import find_number
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileSink
from notification_service.connectors.line_format import Line, decode_line
from notification_service.connectors.region_port import SinkCapabilities

if TYPE_CHECKING:
    from simulation.regions.worker import RegionWorker

_CHANNELS = {Channel.NOTIFICATIONS: "notifications.jsonl", Channel.DEAD_LETTERS: "dead-letters.jsonl"}


class RegionFileSink(FileSink):
    """The sink with what a participant of a region says of itself."""

    capabilities = SinkCapabilities(is_transactional=False, remembers=True)
    notes = ()


class StruckRegionFiles(SystemFiles):
    """File operations of one worker. A struck write leaves any beginning of its data behind."""

    def __init__(self, worker: RegionWorker) -> None:
        self._worker = worker

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        half = bytes(data)[: self._worker.choose(len(data) + 1)]
        failure = OSError(errno.ENOSPC, "No space left on device")
        try:
            self._worker.ask("produce", lambda: None, failure)
        except BaseException:
            super().write(descriptor, half)
            raise
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self._worker.ask("commit", lambda: super(StruckRegionFiles, self).fsync(descriptor), _failure())

    def replace(self, source: Path, target: Path) -> None:
        self._worker.ask("commit", lambda: super(StruckRegionFiles, self).replace(source, target), _failure())

    def truncate(self, descriptor: int, length: int) -> None:
        self._worker.ask("commit", lambda: super(StruckRegionFiles, self).truncate(descriptor, length), _failure())


def make_file_sink(worker: RegionWorker, directory: Path) -> RegionFileSink:
    return RegionFileSink(FileSettings(TOPIC, directory, directory), StruckRegionFiles(worker))


def written(directory: Path) -> list[Left]:
    """Return what stands in the files, each channel in its order."""
    return [each for channel, name in _CHANNELS.items() for each in _of_channel(directory / name, channel)]


def forget_positions(directory: Path) -> None:
    """Remove the marker of this sink."""
    (directory / "positions.json").unlink(missing_ok=True)


def _of_channel(path: Path, channel: Channel) -> list[Left]:
    if not path.exists():
        return []
    # The last line may be torn if the sink was removed since.
    return [_to_left(line, channel) for line in path.read_bytes().split(b"\n")[:-1] if line]


def _to_left(line: bytes, channel: Channel) -> Left:
    number, decoded = find_number(line), decode_line(line)
    assert number is not None, line
    assert isinstance(decoded, Line), line
    return Left(number.partition, OutputRecord(number.number, channel, decoded.key, decoded.headers, decoded.value or b""))


def _failure() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))
