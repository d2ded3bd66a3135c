"""Makes the envelopes of the benchmarks, and workers as the service composes them, which run until everything is published.

The simulator makes the envelopes; the same seed gives the same bytes.
"""

import random
import secrets
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from benchmarks._runner import ROOT, Spent, Stopwatch, directory
from guardian.cycle import Cycle
from guardian.ports import PartitionOutput, Polled, Position, TransportStatus
from notification_service.configuration.configuration import load
from notification_service.connectors.files.sink import _encode
from notification_service.connectors.line_format import Line, decode_line
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.stop_signal import Wait
from notification_service.supervision.suspects import Suspects
from notification_service.wiring.composition import Parts, compose
from notification_service.worker.worker import WorkerInFlight
from resequencer.record import Origin, Partition, Record
from resequencer.storage_port import Commit, PartitionStore, StashEntry, UnitChange, WaitKind, Waits

CONFIGURATION = ROOT / "conf" / "application.conf"
TOPIC = "IPF_PROCESSING_DATA"
SEED = 7
ENVELOPES_PER_UNIT = 7.9
"""Lines per payment, with 2 % duplicates: 200 000 lines are 25 000 units."""

_DISORDER = ("--window", 2_000, "--duplicates", "2%", "--losses", 0, "--late", 0, "--garbage", 0)
PARTITION = Partition(TOPIC, 0)
UNIT_STATE, _RECORD = random.randbytes(150), random.randbytes(1_000)


class Workload(msgspec.Struct, frozen=True):
    """The lines of `file`, of about 1.1 KB each."""

    file: Path
    lines: int

    def read(self) -> list[bytes]:
        with self.file.open("rb") as file:
            return list(islice(file, self.lines))


def _must_not_wait(milliseconds: int, _: object = None) -> None:
    raise AssertionError(f"waited {milliseconds} ms: something is unavailable or there is nothing more to read")


@contextmanager
def made(envelopes: int, *more: object) -> Iterator[Workload]:
    """Yield about so many envelopes in a temporary directory, which is removed afterwards.

    They are out of order within 2 000 places, and 2 % of them come twice, unless further arguments of the simulator change it.
    """
    units = max(1, round(envelopes / ENVELOPES_PER_UNIT))
    with directory() as place:
        program = (Path(sys.executable).with_name("resequencer"), "simulate", "--config", CONFIGURATION)
        where = ("--set", override("run-directory", place), "--units", units, "--seed", SEED)
        subprocess.run(list(map(str, (*program, *where, *_DISORDER, *more))), check=True, stdout=subprocess.DEVNULL)
        file = place / "in" / "partition-0.jsonl"
        yield Workload(file, file.read_bytes().count(b"\n"))


def line_of(encoded: bytes) -> Line:
    """Return the key, the headers and the value of a line of a file."""
    read = decode_line(encoded)
    assert isinstance(read, Line)
    return read


def override(key: str, value: object) -> str:
    return f'payment-status-notification.{key}="{value}"'


@contextmanager
def serving(*overrides: str) -> Iterator[None]:
    """Run the service with these keys, from its start to its stop."""
    program = (sys.executable, "-m", "notification_service")
    subprocess.run([*program, "start", "--set", *overrides], check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*program, "stop", "--set", *overrides], check=True, capture_output=True)


class MemoryTransport:
    """One partition with input and output lines in memory: the same coding as on files, without files."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._next = 0
        self._offset = 0
        self._end = sum(map(len, lines))
        self._position: Position | None = None
        self.output: list[bytes] = []

    def standing(self) -> TransportStatus:
        return TransportStatus()

    def assignment(self) -> list[Partition]:
        return [PARTITION]

    def position(self, partition: Partition) -> Position | None:
        return self._position

    def source(self, partition: Partition) -> str:
        return ""

    def start_offset(self, partition: Partition) -> int:
        return 0

    def end_offset(self, partition: Partition) -> int:
        return self._end

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        assert offset == self._offset, "a benchmark reads its lines once"

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        records, offset = [], self._offset
        for line in self._lines[self._next : self._next + max_records]:
            read = decode_line(line)
            assert isinstance(read, Line)
            records.append(Record(Origin(PARTITION, offset), read.value, read.key, read.headers))
            offset += len(line)
        self._next, self._offset = self._next + len(records), offset
        ends = {PARTITION: self._end}
        return Polled(tuple(records), {PARTITION: offset} if records else {}, ends, ends)

    def wake(self) -> None:
        """Do nothing: no poll waits."""

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        for each in outputs:
            self.output += [_encode(each.partition, record) for record in each.records]
            self._position = each.position

    def close(self) -> None:
        """Do nothing; there is nothing to close."""


def in_process(lines: Sequence[bytes], directory: Path, *chosen: str) -> tuple[Cycle, MemoryTransport]:
    """Return the core with storage none: the whole worker without files and database."""
    transport = MemoryTransport(lines)
    parts = composed(directory, "none", *chosen)
    # Composed as usual except for the transport. Without files to read again, stashed envelopes count as settled.
    settings = replace(parts.cycle._settings, acknowledge_handled=False, takes_whole_batches=True)
    return Cycle(parts.servers._replace(transport=transport), parts.cycle._tools, settings), transport


def on_files(lines: Sequence[bytes], directory: Path, *chosen: str) -> Parts:
    """Return the whole worker: file transport and embedded storage, with every commit and publication synced."""
    (directory / "in").mkdir()
    (directory / "in" / "partition-0.jsonl").write_bytes(b"".join(lines))
    return composed(directory, "embedded", *chosen)


def composed(directory: Path, storage: str, *chosen: str, wait: Wait = _must_not_wait) -> Parts:
    """Return a worker whose files are in the directory; `chosen` sets further keys.

    The worker never waits, unless `wait` lets it, and no deadline passes, so results are the same however slow the machine is.
    """
    where = (override("run-directory", directory), override("resequencer.storage-type", storage))
    long_deadline = override("resequencer.stash-timeout", "1h")
    in_flight = WorkerInFlight(InFlightMemory(), Suspects(directory))
    return compose(load(CONFIGURATION, [*where, long_deadline, *chosen]), wait, lambda: False, in_flight=in_flight)


def waiting(unit: str, size: int, number: int = 0) -> UnitChange:
    """Return a unit that waits with an envelope of that size, until a deadline within the configured hour."""
    since = time.time_ns() // 1_000_000 - random.randrange(600_000)
    waits = Waits(since + 3_600_000, WaitKind.DEADLINE, since, f"sequence:{since % 20}", "SEQUENCE", 1, size)
    return UnitChange(unit, UNIT_STATE, waits, (StashEntry(number, _RECORD[:size]),))


def commit(parts: Parts, store: PartitionStore, changes: Iterable[UnitChange]) -> None:
    each = Commit(store.header.commit + 1, secrets.token_hex(8), 0, 0, changes=tuple(changes))
    parts.retry.until_answered("storage", partial(store.commit, each))


def run_through(cycle: Cycle, records: int) -> Spent:
    """Run cycles until so many records were read and their output is published, then publish the last positions."""
    watch = Stopwatch()
    while cycle.metrics.counts["records"] < records or any(each.unpublished for each in cycle.partitions.owned.values()):
        cycle.run_once()
    cycle.close()
    return watch.spent()
