"""Envelopes per second of a bare loop, the core in the process, and the whole worker: `python -m benchmarks.throughput`.

The same envelopes go through all of them: about 1.1 KB each, 25 000 units of about eight, out of order within 2 000 places, 2 %
of them twice, none lost, one partition, strategy SEQUENCE. Each reads lines, decodes envelopes, orders them, makes the pain.002
and encodes the output lines. The differences:

    bare loop, trusting   one loop over dicts (`_bare_loop.py`): no checks, no actors, no time, no durability
    bare loop             the same with the service's decoder, which refuses what is no envelope (docs/contract.md, section 4)
    core in process       actors, deadlines, retries, metrics and a commit per poll, with storage none; lines stay in memory
    whole worker          file transport and embedded SQLite: every commit and publication is synced before the next

Each measurement has a process of its own. They take turns, `--rounds` times, and the best round of each counts, because other
load can only add to the cost. CPU seconds are those of the process, with its system calls.
"""

import argparse
from collections.abc import Callable, Iterable
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from benchmarks._bare_loop import Read, bare_loop, checked, trusting
from benchmarks._worker import PARTITION, Spent, Stopwatch, in_process, on_files, run_through
from benchmarks._workload import Workload, made
from guardian.gc_tuning import calm_collector

Said = dict[str, list[dict[str, Any]]]
"""The output of each unit, in order."""

FOR_SCALE = """\
For scale, from docs/performance.md (200 000 messages, 24 510 units of 8, window 2 000, 2 % duplicates, messages/s; the
same kind of machine, but not the same work: none of them decodes a payment or makes a report): a Python dict 700 000; Pekko,
guardian and child per unit, in memory, 116 000 (218 000 warm); Spring Integration in memory 124 000, on H2 1 550, on Redis
610; Camel's stream resequencer 1 800 to 17 000; Confluent's parallel consumer, keyed, Kafka to Kafka with transactions 6 300."""


def trusting_loop(workload: Workload) -> Spent:
    return _looped(workload, trusting)


def checked_loop(workload: Workload) -> Spent:
    return _looped(workload, checked)


def core(workload: Workload) -> Spent:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        cycle, _ = in_process(workload.read(), Path(directory))
        calm_collector()
        return run_through(cycle, workload.lines)


def worker(workload: Workload) -> Spent:
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        cycle = on_files(workload.read(), Path(directory)).cycle
        calm_collector()
        return run_through(cycle, workload.lines)


MEASURED: dict[str, Callable[[Workload], Spent]] = {
    "bare loop, trusting": trusting_loop,
    "bare loop": checked_loop,
    "core in process": core,
    "whole worker": worker,
}
GOALS = {"core in process": 0.5, "whole worker": 0.25}
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


def _looped(workload: Workload, read: Read) -> Spent:
    lines = workload.read()
    calm_collector()
    watch = Stopwatch()
    left = list(bare_loop(lines, PARTITION, read))
    spent = watch.spent()
    assert left
    return spent


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
    arguments.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    chosen = arguments.parse_args()
    with made(chosen.envelopes) as workload, get_context("spawn").Pool(1, maxtasksperchild=1) as processes:
        difference = processes.apply(find_difference, (msgspec.structs.replace(workload, lines=min(workload.lines, 20_000)),))
        print(f"{workload.lines} envelopes; the first 20 000 through loop and worker: {difference or 'the same notifications'}")
        rounds = [{name: processes.apply(each, (workload,)) for name, each in MEASURED.items()} for _ in range(chosen.rounds)]
    _show(workload.lines, {name: _best([each[name] for each in rounds]) for name in MEASURED})
    if difference is not None:
        raise SystemExit(1)


def _best(spent: list[Spent]) -> Spent:
    return Spent(min(each.wall for each in spent), min(each.cpu for each in spent))


def _show(envelopes: int, best: dict[str, Spent]) -> None:
    loops = [best["bare loop, trusting"].cpu, best["bare loop"].cpu]
    print(f"\n{'':22}{'envelopes/s':>12}{'per CPU s':>12}{'us of CPU':>12}{'of trusting':>14}{'of bare loop':>14}{'goal':>8}")
    for name, spent in best.items():
        speeds = f"{envelopes / spent.wall:12,.0f}{envelopes / spent.cpu:12,.0f}{spent.cpu / envelopes * 1e6:12.1f}"
        ratios = "".join(f"{loop / spent.cpu:14.2f}" for loop in loops)
        print(f"{name:22}{speeds}{ratios}{GOALS.get(name, ''):>8}")
    print(f"\n{FOR_SCALE}")


if __name__ == "__main__":
    main()
