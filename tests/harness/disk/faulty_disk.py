"""A disk that fails on a test's demand, under real processes and under SQLite itself: `faulty_disk.c`, loaded before libc."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path
from typing import NamedTuple

import pytest

_SOURCE = Path(__file__).with_suffix(".c")
_RULE = struct.Struct("64sIiqqqq")
_RULES = 8
_HOLD, _KILL = 0, -1
_ALWAYS = 1 << 62


class Call(IntFlag):
    """The calls of a program to the disk, as `faulty_disk.c` numbers them. OPEN in a trace means that the file was created."""

    OPEN = 1
    READ = 2
    WRITE = 4
    SYNC = 8
    TRUNCATE = 16
    RENAME = 32
    UNLINK = 64
    LINK = 128


class Fault(NamedTuple):
    """A rule that is in force until it is lifted. `struck` is how often it has struck."""

    disk: FaultyDisk
    place: int

    @property
    def struck(self) -> int:
        return self.disk.read(self.place)[5]

    def lift(self) -> None:
        self.disk.write(self.place)


class FaultyDisk:
    """Controls the faults of all processes that were started with `environment`. Without a rule nothing fails.

    A rule names a file by the end of its path, and the calls on it. The first `skip` calls pass, the next `times` are struck.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        with Path(environment["FAULTY_DISK_BOARD"]).open("r+b") as file:
            self._board = mmap.mmap(file.fileno(), 0)

    @classmethod
    def make(cls, directory: Path, trace_of: Path | None = None) -> FaultyDisk:
        """Build the library in `directory`. With `trace_of`, `trace` records every call that changes something below it."""
        directory.mkdir(parents=True, exist_ok=True)
        board = directory / "board"
        board.write_bytes(bytes(_RULE.size * _RULES))
        environment = {**os.environ, "LD_PRELOAD": str(_built(directory)), "FAULTY_DISK_BOARD": str(board)}
        if trace_of is not None:
            environment |= {"FAULTY_DISK_TRACE": str(directory / "trace"), "FAULTY_DISK_ROOT": str(trace_of)}
        return cls(environment)

    @property
    def trace(self) -> Path:
        return Path(self.environment["FAULTY_DISK_TRACE"])

    @classmethod
    def under_this_process(cls) -> FaultyDisk:
        """Return the disk with whose environment this process was started."""
        return cls(os.environ)

    def fail(self, name: str, calls: Call, error: int, *, skip: int = 0, times: int = _ALWAYS, torn: int = 0) -> Fault:
        """Let the calls fail with this errno. A write leaves its first `torn` bytes behind."""
        return self._add(name, calls, error, skip, times, torn)

    def hold(self, name: str, calls: Call, *, skip: int = 0) -> Fault:
        """Let the calls block until the fault is lifted."""
        return self._add(name, calls, _HOLD, skip, _ALWAYS, 0)

    def kill(self, name: str, calls: Call, *, skip: int = 0, torn: int = 0) -> Fault:
        """Kill the process that makes the call, as by `kill -9`. If the call is a sync, the sync has failed then."""
        return self._add(name, calls, _KILL, skip, _ALWAYS, torn)

    def read(self, place: int) -> tuple[bytes, int, int, int, int, int, int]:
        rule: tuple[bytes, int, int, int, int, int, int] = _RULE.unpack_from(self._board, place * _RULE.size)
        return rule

    def write(self, place: int, *rule: object) -> None:
        """The rule, or none. What makes it count (its calls) is written last, and taken away first."""
        at = place * _RULE.size
        struct.pack_into("I", self._board, at + 64, 0)
        if rule:
            name, calls, *rest = rule
            struct.pack_into("64s", self._board, at, name)
            struct.pack_into("=iqqqq", self._board, at + 68, *rest)
            struct.pack_into("I", self._board, at + 64, calls)

    def _add(self, name: str, calls: Call, error: int, skip: int, times: int, torn: int) -> Fault:
        free = next(place for place in range(_RULES) if not self.read(place)[1])
        self.write(free, name.encode(), calls, error, skip, times, 0, torn)
        return Fault(self, free)


def _built(directory: Path) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler to build the faulty disk with: install gcc")
    library = directory / "faulty_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl", "-lpthread"], check=True)
    return library
