"""The wall clock of processes that a test starts, under whatever they call: `set_clock.c`, loaded before libc."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from harness.waiting import wait_until

from resequencer.clock import Belief

_SOURCE = Path(__file__).with_suffix(".c")
DAY_MS = 86_400_000


class SetClock:
    """The wall clock of all processes that are started with `environment`; the time that passes stays right.

    libfaketime stops threads of Python now and then, in the semaphores that it takes over.
    """

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("there is no C compiler to build the clock with: install gcc")
        file, library = directory / "clock", directory / "set_clock.so"
        file.write_bytes(bytes(8))
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(_SOURCE), "-ldl"], check=True)
        self.added = {"LD_PRELOAD": str(library), "SET_CLOCK": str(file)}
        self.environment = {**os.environ, **self.added}
        self._right_ms = 0
        with file.open("r+b") as opened:
            self._ahead = mmap.mmap(opened.fileno(), 8)

    def begin_at_second(self, second: int) -> None:
        """Let the right time be so many seconds after a full minute. Only before the first process begins."""
        self._right_ms = (second * 1_000 - time.time_ns() // 1_000_000) % 60_000
        self.set(0)

    def set(self, days: int) -> None:
        """Set the clock so many days ahead of the right time."""
        struct.pack_into("q", self._ahead, 0, self._right_ms + days * DAY_MS)

    def wait_until_settled(self, run_directory: Path, *names: str) -> None:
        """Wait until processes do not believe a jump any more: the clock has agreed for `clock.trusted-after`, or a minute."""

        def is_settled(name: str) -> bool:
            file = run_directory / f"clock-{name}.json"
            return file.exists() and msgspec.json.decode(file.read_bytes(), type=Belief).is_settled

        wait_until(lambda: all(map(is_settled, names)), "the clock has agreed for long enough")

    def right_ms(self) -> int:
        """The right time, in ms since the epoch."""
        return time.time_ns() // 1_000_000 + self._right_ms
