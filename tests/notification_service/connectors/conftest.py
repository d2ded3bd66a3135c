"""The file transport on temporary directories, and file operations in which a test can plant faults."""

import errno
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport


class Crash(BaseException):
    """The process ends here: our code must not catch it."""


class FaultyFiles(SystemFiles):
    """Counts the operations that change something. The operation numbered `fault_at` (from 1) raises `fault`.

    A struck write leaves its first `torn` bytes behind. The class keeps what a power cut would leave: the synced content of each
    file (under a number of its own), the present names, and the names at the last sync of their directory.
    """

    def __init__(self) -> None:
        self.count = 0
        self.fault_at: int | None = None
        self.fault: Callable[[], BaseException] = Crash
        self.torn = 0
        self.paths: dict[int, Path] = {}
        self._numbers = count(1)
        self._names: dict[Path, int] = {}
        self._durable_names: dict[Path, int] = {}
        self._synced: dict[int, bytes] = {}
        self._written: dict[int, int] = {}
        self._punched: dict[int, int] = {}

    def _strike(self) -> bool:
        self.count += 1
        return self.count == self.fault_at

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT and self._strike():
            raise self.fault()
        self._note_opened(path, flags)
        descriptor = super().open(path, flags)
        self.paths[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        self._written[self._names[self.paths[descriptor]]] = 100
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
            self._durable_names = {each: number for each, number in self._durable_names.items() if each.parent != path}
            self._durable_names |= {each: number for each, number in self._names.items() if each.parent == path}
        else:
            self._synced[self._names[path]] = path.read_bytes()

    def truncate(self, descriptor: int, length: int) -> None:
        if self._strike():
            raise self.fault()
        super().truncate(descriptor, length)

    def replace(self, source: Path, target: Path) -> None:
        if self._strike():
            raise self.fault()
        super().replace(source, target)
        self._names[target] = self._names.pop(source)

    def unlink(self, path: Path) -> None:
        if self._strike():
            raise self.fault()
        super().unlink(path)
        self._names.pop(path, None)

    def punch(self, descriptor: int, start: int, length: int) -> None:
        if self._strike():
            raise self.fault()
        super().punch(descriptor, start, length)
        self._punched[self._names[self.paths[descriptor]]] = start + length

    def synced(self, path: Path) -> bytes | None:
        """Return the content that is certainly on the disk."""
        return self._synced.get(self._names[path])

    def note_durable(self, path: Path) -> None:
        """Note that the present content is on the disk."""
        self._names[path] = self._durable_names[path] = next(self._numbers)
        self._synced[self._names[path]] = path.read_bytes()

    def cut_power(self, *, names_are_lost: bool, only: str | None = None) -> None:
        """Leave the synced content, under the present names or under the synced ones; with `only`, just this name falls back.

        A file that was written and not synced may hold any bytes, though its name is there.
        """
        for path in self._names.keys() | self._durable_names.keys():
            path.unlink(missing_ok=True)
        durable = {path: number for path, number in self._durable_names.items() if only in (None, path.name)}
        lasting = {path: number for path, number in self._names.items() if only not in (None, path.name)}
        for path, number in (lasting | durable if names_are_lost else self._names).items():
            content = self._synced.get(number, b"\x00" * self._written.get(number, 0))
            punched = self._punched.get(number, 0)
            path.write_bytes(b"\x00" * punched + content[punched:])

    def _note_opened(self, path: Path, flags: int) -> None:
        if path.is_dir():
            return
        if path.exists():
            if path not in self._names:
                self.note_durable(path)
        elif flags & os.O_CREAT:
            self._names[path] = next(self._numbers)
        if flags & os.O_TRUNC:
            self._synced.pop(self._names[path], None)


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
    """How long the transport asked to wait each time, in order."""
    return []


@pytest.fixture
def transport(settings: FileSettings, waits: list[int]):
    settings.in_directory.mkdir()
    made = FileTransport(settings, lambda ms, _: waits.append(ms), FaultyFiles())
    yield made
    made.close()
