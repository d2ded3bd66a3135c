"""Envelopes per second of a bare loop, the core in the process, and the whole worker: `python -m benchmarks.throughput`.

The same envelopes go through all of them: about 1.1 KB each, 25 000 units of about eight, out of order within 2 000 places, 2 %
of them twice, none lost, one partition, strategy SEQUENCE. Each reads lines, decodes envelopes, orders them, makes the pain.002
and encodes the output lines. The differences:

    bare loop, trusting   one loop over dicts (`_bare_loop.py`): no checks, no actors, no time, no durability
    bare loop             the same with the service's decoder, which refuses what is no envelope (docs/contract.md, section 4)
    core in process       actors, deadlines, retries, metrics and a commit per poll, with storage none; lines stay in memory
    whole worker          file transport and embedded SQLite: every commit and publication is synced before the next

Each has a process of its own. They run in lockstep: a slice of the envelopes in one after the other, in turns from the first and
from the last, so that other load on the machine meets them alike. A ratio is the median over the slices, with the range in which
19 of 20 medians of so many slices lie: differences of three percent can be seen. CPU seconds are those of the process, with its
system calls.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import count
from math import sqrt
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from benchmarks._bare_loop import Read, bare_loop, checked, trusting
from benchmarks._worker import PARTITION, Spent, Stopwatch, in_process, on_files, run_through
from benchmarks._workload import Workload, made
from guardian.cycle import Cycle
from guardian.gc_tuning import calm_collector

Said = dict[str, list[dict[str, Any]]]
"""The output of each unit, in order."""

FOR_SCALE = """\
For scale, from docs/performance.md (200 000 messages, 24 510 units of 8, window 2 000, 2 % duplicates, messages/s; the
same kind of machine, but not the same work: none of them decodes a payment or makes a report): a Python dict 700 000; Pekko,
guardian and child per unit, in memory, 116 000 (218 000 warm); Spring Integration in memory 124 000, on H2 1 550, on Redis
610; Camel's stream resequencer 1 800 to 17 000; Confluent's parallel consumer, keyed, Kafka to Kafka with transactions 6 300."""


Run = Callable[[int], int]
"""Reads on until so many envelopes were read in all, and returns how many they are."""


class Slice(NamedTuple):
    """What one of them spent on its part of the envelopes."""

    spent: Spent
    envelopes: int

    @property
    def each(self) -> float:
        """Seconds of CPU for each envelope."""
        return self.spent.cpu / self.envelopes


@contextmanager
def loop(read: Read, workload: Workload) -> Iterator[Run]:
    lines = workload.read()
    taken = count()
    read_to = 0

    def reading() -> Iterator[bytes]:
        nonlocal read_to
        for line, number in zip(lines, taken, strict=False):
            read_to = number + 1
            yield line

    left = bare_loop(reading(), PARTITION, read)

    def run(to: int) -> int:
        while read_to < to and next(left, None) is not None:
            pass
        return read_to

    yield run


@contextmanager
def core(workload: Workload) -> Iterator[Run]:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        yield partial(_run, in_process(workload.read(), Path(directory))[0])


@contextmanager
def worker(workload: Workload) -> Iterator[Run]:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        yield partial(_run, on_files(workload.read(), Path(directory)).cycle)


MEASURED: dict[str, Callable[[Workload], AbstractContextManager[Run]]] = {
    "bare loop, trusting": partial(loop, trusting),
    "bare loop": partial(loop, checked),
    "core in process": core,
    "whole worker": worker,
}
GOALS = {"core in process": 0.6, "whole worker": 0.4}
"""Ratios to the bare loop, per second of CPU."""


def find_difference(workload: Workload) -> str | None:
    """Return the difference between the output of the bare loop and of the whole worker; None if there is none."""
    said = _said(bare_loop(workload.read(), PARTITION, checked))
    if said != _said(bare_loop(workload.read(), PARTITION, trusting)):
        return "the two bare loops differ"
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        run_through(on_files(workload.read(), Path(directory)).cycle, workload.lines)
        with (Path(directory) / "out" / "notifications.jsonl").open("rb") as file:
            by_worker = _said(file)
    return next((f"{unit} differs" for unit in said | by_worker if said.get(unit) != by_worker.get(unit)), None)


def _run(cycle: Cycle, to: int) -> int:
    while cycle.metrics.counts["records"] < to:
        cycle.run_once()
    return int(cycle.metrics.counts["records"])


def in_lockstep(workload: Workload, step: int) -> dict[str, list[Slice]]:
    """Run all of them through the workload; return what each spent on each slice but for the first, which warms up."""
    found: dict[str, list[Slice]] = {name: [] for name in MEASURED}
    with ExitStack() as stack:
        running = {name: stack.enter_context(_process(name, workload)) for name in MEASURED}
        names = list(running)
        for to in range(step, workload.lines + step, step):
            names.reverse()
            for name in names:
                running[name].send(min(to, workload.lines))
                found[name].append(running[name].recv())
    return {name: slices[1:] for name, slices in found.items()}


@contextmanager
def _process(name: str, workload: Workload) -> Iterator[Connection]:
    spawn = get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_serve, args=(name, workload, theirs))
    process.start()
    theirs.close()
    try:
        ours.recv()
        yield ours
    finally:
        process.kill()
        process.join()


def _serve(name: str, workload: Workload, pipe: Connection) -> None:
    with MEASURED[name](workload) as run:
        calm_collector()
        pipe.send(None)
        before = 0
        while True:
            to = pipe.recv()
            watch = Stopwatch()
            read_to = run(to)
            pipe.send(Slice(watch.spent(), read_to - before))
            before = read_to


def _said(lines: Iterable[bytes]) -> Said:
    said: Said = {}
    for line in lines:
        notification = msgspec.json.decode(line)
        del notification["number"], notification["value"]["CstmrPmtStsRpt"]["GrpHdr"]["CreDtTm"]
        said.setdefault(notification["key"], []).append(notification)
    return said


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--envelopes", type=int, default=200_000, help="approximate number (default: %(default)s)")
    arguments.add_argument("--large", action="store_const", const=1_000_000, dest="envelopes", help="1 000 000")
    arguments.add_argument("--slice", type=int, default=1_000, help="envelopes at once (default: %(default)s)")
    chosen = arguments.parse_args()
    with made(chosen.envelopes) as workload:
        with get_context("spawn").Pool(1) as processes:
            sample = msgspec.structs.replace(workload, lines=min(workload.lines, 20_000))
            difference = processes.apply(find_difference, (sample,))
        print(f"{workload.lines} envelopes; the first 20 000 through loop and worker: {difference or 'the same notifications'}")
        _show(in_lockstep(workload, chosen.slice))
    if difference is not None:
        raise SystemExit(1)


def _show(found: Mapping[str, Sequence[Slice]]) -> None:
    speeds, ratios = f"{'envelopes/s':>12}{'per CPU s':>12}{'us of CPU':>12}", f"{'of trusting':>14}{'of bare loop':>14}"
    print(f"\n{'':22}{speeds}{ratios}{'range':>14}{'goal':>6}")
    for name, slices in found.items():
        envelopes = sum(each.envelopes for each in slices)
        wall, cpu = (sum(each.spent[at] for each in slices) for at in (0, 1))
        speeds = f"{envelopes / wall:12,.0f}{envelopes / cpu:12,.0f}{cpu / envelopes * 1e6:12.1f}"
        (of_trusting, *_), (ratio, low, high) = (_ratio(found[loop], slices) for loop in ("bare loop, trusting", "bare loop"))
        print(f"{name:22}{speeds}{of_trusting:14.2f}{ratio:14.3f}{f'{low:.3f}-{high:.3f}':>14}{GOALS.get(name, ''):>6}")
    print(f"\n{FOR_SCALE}")


def _ratio(loop: Sequence[Slice], slices: Sequence[Slice]) -> tuple[float, float, float]:
    """Return the median of the ratios of slices that ran side by side, and between which of them it lies in 19 of 20 cases."""
    pairs = zip(loop, slices, strict=True)
    ratios = sorted(one.each / other.each for one, other in pairs if one.envelopes and other.envelopes)
    middle, away = len(ratios) / 2, sqrt(len(ratios))
    return tuple(ratios[min(max(0, int(at)), len(ratios) - 1)] for at in (middle, middle - away, middle + away))  # type: ignore[return-value]


if __name__ == "__main__":
    main()
