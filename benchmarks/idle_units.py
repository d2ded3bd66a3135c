"""What idle units cost a worker: `python -m benchmarks.idle_units [--large]`.

The same traffic, units of about eight envelopes under random names, runs first beside 1 000 idle units, then beside many:

    whole worker, in storage      file transport and embedded storage; only the database has the idle units
    core in process, in storage   storage none, which keeps 512 MB of units at most
    core in process, as actors    each idle unit was used a moment ago, and its actor is alive

The traffic is measured in pieces, in CPU microseconds per envelope, and the cheapest piece counts, because other load can only
add to the cost. Bytes are per idle unit: its content, the growth of the process, and the growth of the database.
"""

import argparse
import os
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks._idle import Idle, renamed
from benchmarks._worker import in_process, on_files, run_through
from benchmarks._workload import Workload, made, override
from guardian.cycle import Cycle
from guardian.gc_tuning import calm_collector

FEW = 1_000
PIECE = 4_000
PIECES = 6
DEAREST = 1.2
LARGEST_BYTES = 2_048
ALIVE = override("resequencer.idle-timeout", "3h")


class Beside(NamedTuple):
    """CPU microseconds per envelope beside few and beside many idle units, and the bytes per idle unit."""

    few: float
    many: float
    idle: int
    memory: float
    file: float
    content: float

    @property
    def ratio(self) -> float:
        return self.many / self.few


def in_database(workload: Workload, idle: int) -> Beside:
    lines = renamed(workload.read())
    with TemporaryDirectory(prefix="resequencer-benchmark-") as name:
        directory = Path(name)
        cycle = on_files(lines, directory).cycle
        return _compared(cycle, lines, idle, Idle.store, partial(_database_bytes, directory))


def in_memory(workload: Workload, idle: int) -> Beside:
    lines = renamed(workload.read())
    with TemporaryDirectory(prefix="resequencer-benchmark-") as name:
        return _compared(in_process(lines, Path(name))[0], lines, idle, Idle.store, lambda: 0)


def as_actors(workload: Workload, idle: int) -> Beside:
    lines = renamed(workload.read())
    with TemporaryDirectory(prefix="resequencer-benchmark-") as name:
        return _compared(in_process(lines, Path(name), ALIVE)[0], lines, idle, Idle.keep_alive, lambda: 0)


def _compared(
    cycle: Cycle, lines: list[bytes], many: int, make: Callable[[Idle, int], None], file_bytes: Callable[[], int]
) -> Beside:
    calm_collector()
    run_through(cycle, PIECE)
    idle = Idle(cycle, lines[:PIECE])
    make(idle, FEW)
    beside_few = _cheapest(cycle)
    memory, file = _resident_bytes(), file_bytes()
    make(idle, many - FEW)
    memory, file = _resident_bytes() - memory, file_bytes() - file
    beside_many = _cheapest(cycle)
    return Beside(beside_few, beside_many, many, memory / (many - FEW), file / (many - FEW), idle.bytes_each)


def _cheapest(cycle: Cycle) -> float:
    read = cycle.metrics.counts["records"]
    pieces = [run_through(cycle, read + PIECE * number).cpu for number in range(1, PIECES + 1)]
    return min(pieces) / PIECE * 1_000_000


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _database_bytes(directory: Path) -> int:
    return (directory / "state.db").stat().st_size


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--large", action="store_true", help="1 000 000 idle units, which takes about ten minutes and 5 GB")
    is_large = arguments.parse_args().large
    measured = {
        "whole worker, in storage": (in_database, 1_000_000 if is_large else 200_000),
        "core in process, in storage": (in_memory, 240_000 if is_large else 200_000),
        "core in process, as actors": (as_actors, 1_000_000 if is_large else 50_000),
    }
    with made(PIECE * (2 * PIECES + 1) + 500) as workload, get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        found = {name: processes.apply(measure, (workload, idle)) for name, (measure, idle) in measured.items()}
    print(f"{'':29}{'idle':>10}{'us, few':>10}{'us, many':>10}{'ratio':>8}{'goal':>8}{'content':>9}{'memory':>8}{'file':>8}")
    for name, each in found.items():
        costs = f"{each.idle:10,}{each.few:10.1f}{each.many:10.1f}{each.ratio:8.2f}{f'<= {DEAREST}':>8}"
        print(f"{name:29}{costs}{each.content:9,.0f}{each.memory:8,.0f}{each.file:8,.0f}")
    print(f"\nno idle unit makes the others dearer: {_verdict(all(each.ratio <= DEAREST for each in found.values()))}")
    stored = [each for name, each in found.items() if name.endswith("in storage")]
    is_small = all(max(each.memory, each.file) <= LARGEST_BYTES for each in stored)
    print(f"a unit that only the storage needs takes at most {LARGEST_BYTES} bytes: {_verdict(is_small)}")


def _verdict(is_met: bool) -> str:
    return "met" if is_met else "NOT met"


if __name__ == "__main__":
    main()
