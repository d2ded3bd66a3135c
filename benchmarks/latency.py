"""From an input line written to its notification written: `python -m benchmarks.latency [--rate 500] [--seconds 20]`.

A real worker process (`resequencer run`: file transport, embedded storage, both synced) runs while envelopes come at a steady
rate, in order, so that none waits for another. An envelope's time starts when its line is written, and ends when its
notification can be read; the output is checked a thousand times a second.
"""

import argparse
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import msgspec

from benchmarks._bare_loop import bare_loop, checked
from benchmarks._worker import PARTITION
from benchmarks._workload import command, made
from guardian.headers import ENVELOPE_ID
from resequencer.record import Origin

Name = tuple[str, str]
"""An envelope's unit and envelope id."""

LOOK_EVERY_S = 0.001
GIVE_UP_AFTER_S = 60


class Writer(Thread):
    """Writes the lines at the rate, and catches up after a delay. `written_at` is when each write returned, in seconds."""

    def __init__(self, lines: list[bytes], file: Path, rate: float) -> None:
        super().__init__()
        self._lines = lines
        self._file = file
        self._rate = rate
        self.written_at: list[float] = []

    def run(self) -> None:
        began = time.perf_counter()
        with self._file.open("ab", buffering=0) as file:
            for number, line in enumerate(self._lines):
                early = began + number / self._rate - time.perf_counter()
                if early > 0:
                    time.sleep(early)
                file.write(line)
                self.written_at.append(time.perf_counter())


def seen_at(file: Path, count: int) -> dict[Name, float]:
    """Return when each of so many lines in the file could first be read."""
    seen: dict[Name, float] = {}
    rest = b""
    give_up = time.perf_counter() + GIVE_UP_AFTER_S
    descriptor = os.open(file, os.O_RDONLY | os.O_CREAT)
    while len(seen) < count and time.perf_counter() < give_up:
        time.sleep(LOOK_EVERY_S)
        content = os.read(descriptor, 1 << 24)
        if content:
            now = time.perf_counter()
            give_up = now + GIVE_UP_AFTER_S
            *lines, rest = (rest + content).split(b"\n")
            seen |= dict.fromkeys(map(_notified, lines), now)
    os.close(descriptor)
    return seen


@contextmanager
def running(directory: Path) -> Iterator[None]:
    """Run a worker that is ready; drain it at the end."""
    with (directory / "log").open("wb") as log:
        worker = subprocess.Popen(command("run", directory), stdout=log, stderr=log)
    try:
        while subprocess.run(command("status", directory), stdout=subprocess.DEVNULL, check=False).returncode:
            assert worker.poll() is None, (directory / "log").read_text(encoding="utf-8")
            time.sleep(0.2)
        yield
    finally:
        worker.terminate()
        worker.wait()


def measured(lines: list[bytes], rate: float) -> list[float]:
    """Return the milliseconds of each notification, ascending."""
    expected = {_notified(line) for line in bare_loop(lines, PARTITION, checked)}
    with TemporaryDirectory(prefix="resequencer-benchmark-") as name:
        directory = Path(name)
        for each in ("in", "out"):
            (directory / each).mkdir()
        partition = directory / "in" / "partition-0.jsonl"
        partition.touch()
        with running(directory):
            writer = Writer(lines, partition, rate)
            writer.start()
            seen = seen_at(directory / "out" / "notifications.jsonl", len(expected))
            writer.join()
    assert seen.keys() == expected, f"{len(expected)} envelopes have notifications, {len(seen)} were seen"
    written_at = dict(zip(map(_sent, lines), writer.written_at, strict=True))
    return sorted((at - written_at[each]) * 1_000 for each, at in seen.items())


def _notified(line: bytes) -> Name:
    notification = msgspec.json.decode(line)
    return notification["key"], notification["headers"][ENVELOPE_ID]


def _sent(line: bytes) -> Name:
    envelope = checked(line, Origin(PARTITION, 0))
    return envelope.unit, envelope.envelope_id


def _at(share: float, ascending: list[float]) -> float:
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=float, default=500, help="envelopes a second (default: %(default)s)")
    arguments.add_argument("--seconds", type=float, default=20, help="default: %(default)s")
    chosen = arguments.parse_args()
    with made(round(chosen.rate * chosen.seconds), window=0, duplicates="0") as workload:
        milliseconds = measured(workload.read(), chosen.rate)
    print(f"{len(milliseconds)} notifications of {workload.lines} envelopes that came at {chosen.rate:g} a second")
    print("milliseconds from line written to notification written")
    print(f"{'p50':>10}{'p90':>10}{'p99':>10}{'longest':>10}")
    print("".join(f"{_at(share, milliseconds):10.1f}" for share in (0.5, 0.9, 0.99, 1)))


if __name__ == "__main__":
    main()
