"""What a change of lookups costs a worker under load: `python -m benchmarks.lookups_switch`.

The whole worker processes the same envelopes as in `throughput`, once with one release, and once while another process switches
between two releases; each switch checks the release's checksums, beside the cycles. The releases differ in the text of every
event, and each notification is compared with the version that its header names. The output shows the duration of the cycles
with the check for new lookups, and how much of it taking up a release took. Each measurement has a process of its own; they
take turns, `--rounds` times, and of each the round with the shortest longest cycle counts.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from benchmarks._releases import asked_of, publish
from benchmarks._worker import on_files
from benchmarks._workload import Workload, made, override
from guardian.gc_tuning import calm_collector
from guardian.headers import LOOKUPS_VERSION
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import Pointer
from notification_service.wiring.composition import Parts

GOAL_MS = 50
_TEXTS = ("the first release", "the second release")
_DECODE = msgspec.json.Decoder(type=list[Pointer])


class Job(msgspec.Struct, frozen=True):
    """`every_ms` is the time between switches, None without switches; `pointers` are the releases by their texts."""

    workload: Workload
    lookups: Path
    pointers: dict[str, Pointer]
    every_ms: int | None


class Measured(msgspec.Struct, frozen=True):
    """Milliseconds of each cycle that read something and of each release taken up.

    `mixed` counts notifications that contradict the version in their header.
    """

    cycles: list[float]
    taken: list[float]
    notifications: int
    mixed: int


def worker(job: Job) -> Measured:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        chosen = override("lookups.directory", job.lookups), override("lookups.check-every", "100ms")
        parts = on_files(job.workload.read(), Path(directory), *chosen)
        calm_collector()
        parts.handler.follow()
        switching = None if job.every_ms is None else _start_switching(job)
        try:
            cycles, taken = _run(parts, job.workload.lines)
        finally:
            if switching is not None:
                switching.kill()
                switching.wait()
        parts.cycle.close()
        parts.handler.close()
        texts = {pointer.version: text for text, pointer in job.pointers.items()}
        told = _told(Path(directory) / "out" / "notifications.jsonl", texts)
    return Measured(cycles, taken, len(told), told.count(False))


def _start_switching(job: Job) -> subprocess.Popen[bytes]:
    pointers = msgspec.json.encode(list(job.pointers.values())).decode()
    command = [sys.executable, "-m", "benchmarks.lookups_switch", "--switch", str(job.lookups), pointers, str(job.every_ms)]
    return subprocess.Popen(command)


def _switch(lookups: str, pointers: str, every_ms: str) -> None:
    """Switch releases until killed."""
    directory, releases = LookupsDirectory(Path(lookups)), _DECODE.decode(pointers.encode())
    while True:
        for pointer in releases:
            time.sleep(int(every_ms) / 1_000)
            directory.switch(pointer)


def _run(parts: Parts, lines: int) -> tuple[list[float], list[float]]:
    """Run cycles as a worker does."""
    cycles, taken, counts = [], [], parts.cycle.metrics.counts
    while counts["records"] < lines:
        before, version, began = counts["records"], parts.handler.version, time.perf_counter()
        parts.cycle.run_once()
        ended = time.perf_counter()
        parts.handler.take_up()
        looked = time.perf_counter()
        if counts["records"] > before:
            cycles.append((looked - began) * 1_000)
        if parts.handler.version != version:
            taken.append((looked - ended) * 1_000)
    return cycles, taken


def _told(file: Path, texts: dict[str, str]) -> list[bool]:
    """Return for each notification whether its text is that of its version."""
    told = []
    with file.open("rb") as lines:
        for line in lines:
            notification = msgspec.json.decode(line)
            status = notification["value"]["CstmrPmtStsRpt"]["OrgnlPmtInfAndSts"][0]["TxInfAndSts"][0]
            told.append(texts[notification["headers"][LOOKUPS_VERSION]] in status["StsRsnInf"][0]["AddtlInf"])
    return told


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--envelopes", type=int, default=60_000, help="about so many (default: %(default)s)")
    arguments.add_argument("--large", action="store_const", const=200_000, dest="envelopes", help="200 000")
    arguments.add_argument("--customers", type=int, default=1_000_000, help="of each release (default: %(default)s)")
    arguments.add_argument("--every-ms", type=int, default=200, help="from one switch to the next (default: %(default)s)")
    arguments.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    arguments.add_argument("--switch", nargs=3, help=argparse.SUPPRESS)
    chosen = arguments.parse_args()
    if chosen.switch:
        _switch(*chosen.switch)
        return
    with (
        made(chosen.envelopes) as workload,
        TemporaryDirectory(prefix="resequencer-benchmark-") as directory,
        get_context("spawn").Pool(1, maxtasksperchild=1) as processes,
    ):
        lookups, found = LookupsDirectory(Path(directory)), asked_of(workload)
        pointers = {text: publish(lookups, found, chosen.customers, text) for text in _TEXTS}
        still, switching = (Job(workload, lookups.path, pointers, each) for each in (None, chosen.every_ms))
        rounds = [[processes.apply(worker, (job,)) for job in (still, switching)] for _ in range(chosen.rounds)]
    _show(rounds)
    if any(each.mixed for both in rounds for each in both):
        raise SystemExit(1)


def _show(rounds: Sequence[Sequence[Measured]]) -> None:
    print(f"{'':12}{'cycles':>8}{'switches':>10}{'p50 ms':>9}{'p99':>8}{'longest':>9}{'taking up':>11}{'mixed':>7}")
    for number, both in enumerate(rounds, 1):
        for name, each in zip(("still", "switching"), both, strict=True):
            cycles = sorted(each.cycles)
            times = f"{median(cycles):9.1f}{cycles[len(cycles) * 99 // 100]:8.1f}{cycles[-1]:9.1f}"
            switches = f"{len(each.taken):10}{times}{max(each.taken, default=0):11.2f}{each.mixed:7}"
            print(f"{number:<2}{name:10}{len(cycles):8}{switches}")
    quickest = [min(max(both[which].cycles) for both in rounds) for which in (0, 1)]
    print(f"longest cycle: {quickest[1] - quickest[0]:.1f} ms more than without switches; goal: at most {GOAL_MS} ms")


if __name__ == "__main__":
    main()
