"""A transport on temporary directories, and the faults that can be planted under it."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from connectors.file_operations import SystemFiles
from connectors.file_settings import FileSettings
from connectors.file_transport import FileTransport


class Crash(BaseException):
    """The process ends here: nothing of ours may catch it."""


class FaultyFiles(SystemFiles):
    """Counts the operations that change something; at the one numbered `fault_at` (from 1) `fault` strikes.

    A write that is struck leaves its first `torn` bytes behind. Keeps what a power cut would leave.
    """

    def __init__(self) -> None:
        self.count = 0
        self.fault_at: int | None = None
        self.fault: Callable[[], BaseException] = Crash
        self.torn = 0
        self.only: str | None = None
        self.paths: dict[int, Path] = {}
        self.synced: dict[Path, bytes] = {}
        self.before_replace: bytes | None = None
        self.replaced: bytes | None = None

    def _strike(self) -> bool:
        self.count += 1
        return self.count == self.fault_at

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT and self._strike():
            raise self.fault()
        if flags & os.O_TRUNC or not path.exists():
            self.synced.pop(path, None)
        descriptor = super().open(path, flags)
        self.paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        if self._strike():
            if self.torn:
                super().write(descriptor, bytes(data[: self.torn]))
            raise self.fault()
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        if self._strike():
            raise self.fault()
        path = self.paths[descriptor]
        if path.is_dir():
            self.before_replace = None
        else:
            self.synced[path] = path.read_bytes()

    def truncate(self, descriptor: int, length: int) -> None:
        if self._strike():
            raise self.fault()
        super().truncate(descriptor, length)

    def replace(self, source: Path, target: Path) -> None:
        if self._strike():
            raise self.fault()
        before = target.read_bytes() if target.exists() else None
        super().replace(source, target)
        self.before_replace = before
        # What was never synced may be any bytes after a power cut, though its name is there.
        self.replaced = self.synced.get(source, b"\x00" * 100)

    def cut_power(self, directory: Path, *, names_are_lost: bool) -> None:
        """Leave of the outputs what was synced; of positions.json perhaps the one before."""
        for path in directory.glob("*.jsonl"):
            path.write_bytes(self.synced.get(path, b""))
        positions = directory / "positions.json"
        if names_are_lost and self.before_replace is not None:
            positions.write_bytes(self.before_replace)
        elif self.replaced is not None:
            positions.write_bytes(self.replaced)


@pytest.fixture
def new_files() -> type[FaultyFiles]:
    return FaultyFiles


@pytest.fixture
def crash() -> type[Crash]:
    return Crash


@pytest.fixture
def no_space() -> Callable[[], OSError]:
    return lambda: OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def settings(tmp_path: Path) -> FileSettings:
    return FileSettings("T", tmp_path / "in", tmp_path / "out")


@pytest.fixture
def waits() -> list[int]:
    """How long the transport asked to wait, in order."""
    return []


@pytest.fixture
def transport(settings: FileSettings, waits: list[int]):
    settings.in_directory.mkdir()
    made = FileTransport(settings, waits.append, FaultyFiles())
    yield made
    made.close()
