"""Samples the resources of a process's descendants several times a second; one that ends counts up to the last sample."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

_PAUSE_SECONDS = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


class Used(NamedTuple):
    """Peak bytes by program name, added up over all processes of the name in one sample; CPU seconds of all, this process too."""

    cpu_seconds: float
    own_peak: int
    peaks: dict[str, int]

    def peak(self, program: str) -> int:
        """Return the sum of the peaks of all programs whose names begin like this."""
        return sum(size for name, size in self.peaks.items() if name.startswith(program))


class Watched:
    """Samples until the context is left. Memory excludes pages that a file backs."""

    def __init__(self) -> None:
        self._cpu: dict[int, float] = {}
        self._peaks: defaultdict[str, int] = defaultdict(int)
        self._own_peak = 0
        self._ending = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def used(self) -> Used:
        self._look()
        return Used(sum(self._cpu.values()), self._own_peak, dict(self._peaks))

    def _run(self) -> None:
        while not self._ending.wait(_PAUSE_SECONDS):
            self._look()

    def _look(self) -> None:
        sizes: defaultdict[str, int] = defaultdict(int)
        for process in (os.getpid(), *_descendants(os.getpid())):
            try:
                status = Path(f"/proc/{process}/status").read_text()
                self._cpu[process] = _cpu_of(process)
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
            size = int(fields.get("RssAnon", "0 kB").split()[0]) * 1_024
            if process == os.getpid():
                self._own_peak = max(self._own_peak, size)
            else:
                sizes[fields["Name"]] += size
        for name, size in sizes.items():
            self._peaks[name] = max(self._peaks[name], size)


def _descendants(process: int) -> Iterator[int]:
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield child
        yield from _descendants(child)


def cpu_of_family(process: int) -> float:
    """Return the CPU seconds of a process, of its children that have ended, and of its descendants."""
    spent = 0.0
    for each in (process, *_descendants(process)):
        with suppress(FileNotFoundError, ProcessLookupError):
            spent += _cpu_of(each, fields=4)
    return spent


def _cpu_of(process: int, fields: int = 2) -> float:
    """Return user and system time, fields 14 and 15 of proc(5); with 4 `fields` that of children that have ended, too."""
    found = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    return sum(map(int, found[11 : 11 + fields])) / _TICKS
