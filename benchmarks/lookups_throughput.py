"""What all lookups cost a worker: `python -m benchmarks.lookups_throughput`.

The same envelopes as in `throughput` go through the whole worker, with the settings file alone and with a release of lookups:
settings, reasons, institutions, and customers, of which `--customers` are never looked up. Every payment finds its customer by
party or by account, and every agent its name; the resulting headers and names are written too. Each measurement has a process
of its own; they take turns, `--rounds` times. The output shows the ratio of CPU and of time for each round, and the median,
because other load on the machine changes from round to round.
"""

import argparse
from multiprocessing import get_context
from multiprocessing.pool import Pool
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks._releases import asked_of, publish
from benchmarks._worker import Spent, on_files, run_through
from benchmarks._workload import Workload, made, override
from guardian.gc_tuning import calm_collector
from notification_service.lookups.directory import LookupsDirectory

GOAL = 0.9


def worker(workload: Workload, lookups: Path | None) -> tuple[Spent, int]:
    """Return the cost, and the number of output bytes."""
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        chosen = () if lookups is None else (override("lookups.directory", lookups),)
        parts = on_files(workload.read(), Path(directory), *chosen)
        assert (parts.handler.version is None) == (lookups is None)
        calm_collector()
        spent = run_through(parts.cycle, workload.lines)
        parts.handler.close()
        return spent, (Path(directory) / "out" / "notifications.jsonl").stat().st_size


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--envelopes", type=int, default=60_000, help="about so many (default: %(default)s)")
    arguments.add_argument("--large", action="store_const", const=200_000, dest="envelopes", help="200 000")
    arguments.add_argument("--customers", type=int, default=1_000_000, help="beside those of the payments (default: %(default)s)")
    arguments.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    chosen = arguments.parse_args()
    with (
        made(chosen.envelopes) as workload,
        TemporaryDirectory(prefix="resequencer-benchmark-") as directory,
        get_context("spawn").Pool(1, maxtasksperchild=1) as processes,
    ):
        lookups = LookupsDirectory(Path(directory))
        found = asked_of(workload)
        publish(lookups, found, chosen.customers)
        print(f"{workload.lines} envelopes ask for " + ", ".join(f"{len(rows)} {name}" for name, rows in found.items()))
        print(f"{'':8}{'CPU us':>10}{'with':>8}{'ratio':>8}{'per s':>12}{'with':>10}{'ratio':>8}{'bytes':>8}{'with':>8}")
        ratios = [_round(processes, workload, lookups.path, number) for number in range(1, chosen.rounds + 1)]
    by_cpu, by_time = (median(each) for each in zip(*ratios, strict=True))
    print(f"{'middle':8}{by_cpu:26.3f}{by_time:30.3f}   goal {GOAL}")


def _round(processes: Pool, workload: Workload, lookups: Path, number: int) -> tuple[float, float]:
    run = processes.apply
    (plain, size), (enriched, enriched_size) = run(worker, (workload, None)), run(worker, (workload, lookups))
    ratios = plain.cpu / enriched.cpu, plain.wall / enriched.wall
    costs = [each.cpu / workload.lines * 1e6 for each in (plain, enriched)]
    speeds = [workload.lines / each.wall for each in (plain, enriched)]
    sizes = [each / workload.lines for each in (size, enriched_size)]
    print(f"{number:<8}{costs[0]:10.1f}{costs[1]:8.1f}{ratios[0]:8.3f}", end="")
    print(f"{speeds[0]:12,.0f}{speeds[1]:10,.0f}{ratios[1]:8.3f}{sizes[0]:8.0f}{sizes[1]:8.0f}", flush=True)
    return ratios


if __name__ == "__main__":
    main()
