"""Runs the cases of a benchmark in turns, keeps each finished run, and prints medians with their ratios.

A benchmark names its cases. A case is measured once in each round, so that other load on the machine meets all cases alike, and
the order of the cases changes from round to round. A ratio is the median of the ratios of runs of the same round, with its range.

Each finished run is a line of `run/benchmarks/NAME.jsonl`: the commit, the settings, the case, the round and the figures. With
`--continue` a benchmark takes the runs that it has already done with this commit and these settings, and does the others.
"""

import argparse
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, NamedTuple, TypeVar

import msgspec

ROOT = Path(__file__).parents[1]
_KEPT = ROOT / "run" / "benchmarks"
_PAUSE_SECONDS = 0.2
WARM_UP_SECONDS = 5
T = TypeVar("T")

Figures = dict[str, float]
"""What a run measured, by name and unit, in the order of the table's columns."""

Ratios = Mapping[str, int]
"""The figures that are shown as ratios to another case: 1 where more is better, -1 where less is."""

COST: Ratios = {"per s": 1, "CPU us": -1}


class WrongResult(Exception):
    """Something was lost, doubled or overtaken: the figures mean nothing."""


class Case(NamedTuple):
    """`of` names the case that its ratios are to. `goal` is what a person compares the figures with."""

    name: str
    measure: Callable[[], Figures]
    of: str = ""
    goal: object = ""


def arguments(description: str | None, large: Mapping[str, Any] | None = None, **defaults: Any) -> argparse.Namespace:
    """Read the command line: an option for each default, and `--large` for other values of some of them."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"rounds": 1, **defaults}.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(default, list):
            parser.add_argument(option, nargs="*", type=type(default[0]), default=default, help="default: %(default)s")
        else:
            parser.add_argument(option, type=type(default), default=default, help="default: %(default)s")
    parser.add_argument("--only", nargs="*", help="only the cases whose names have one of these parts")
    parser.add_argument("--continue", dest="continues", action="store_true", help="take over the runs that are finished")
    if large:
        parser.add_argument("--large", action="store_true", help=", ".join(f"{name} {value}" for name, value in large.items()))
    chosen = parser.parse_args()
    if large and chosen.large:
        vars(chosen).update({name: value for name, value in large.items() if getattr(chosen, name) == defaults[name]})
    chosen.benchmark = parser.prog.removesuffix(".py")
    return chosen


def wanted(chosen: argparse.Namespace, name: str) -> bool:
    return chosen.only is None or any(part in name for part in chosen.only)


def measure(chosen: argparse.Namespace, cases: Sequence[Case], ratios: Ratios = COST) -> dict[str, list[Figures]]:
    """Run the wanted cases and those that they are compared with, print the table, and return the figures of each round."""
    asked = {each.of or each.name for each in cases if wanted(chosen, each.name)}
    cases = [each for each in cases if wanted(chosen, each.name) or each.name in asked]
    found = runs(chosen, cases)
    if found:
        show(cases, found, ratios)
    return found


def runs(chosen: argparse.Namespace, cases: Sequence[Case]) -> dict[str, list[Figures]]:
    """Run the cases in turns, and return the figures of each round. Finished runs are kept, and taken over with `--continue`."""
    settings = {name: str(value) for name, value in vars(chosen).items() if name not in ("continues", "only", "rounds")}
    commit = subprocess.run(("git", "-C", ROOT, "describe", "--always", "--dirty"), capture_output=True, text=True, check=False)
    begin, file = {"commit": commit.stdout.strip(), "settings": settings}, _KEPT / f"{chosen.benchmark}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Figures]] = {each.name: [] for each in cases}
    with file.open("a+b") as kept:
        kept.seek(0)
        lines = map(msgspec.json.decode, kept) if chosen.continues else ()
        finished = {(each["case"], each["round"]): each["figures"] for each in lines if each | begin == each}
        for number in range(chosen.rounds):
            for case in cases if number % 2 == 0 else cases[::-1]:
                figures = finished.get((case.name, number))
                if figures is None:
                    figures = case.measure()
                    kept.write(msgspec.json.encode({**begin, "case": case.name, "round": number, "figures": figures}) + b"\n")
                    kept.flush()
                found[case.name].append(figures)
    return found


def show(cases: Sequence[Case], found: Mapping[str, Sequence[Figures]], ratios: Ratios = COST) -> None:
    """Print a row for each case: medians, and after each figure of `ratios` its ratio with the range."""
    names = list(dict.fromkeys(name for rounds in found.values() for each in rounds for name in each))
    rows = [["", *(part for name in names for part in ((name, "ratio") if name in ratios else (name,))), "goal"]]
    for case in cases:
        row, base = [case.name], found.get(case.of, ())
        for name in names:
            values = [each[name] for each in found[case.name] if name in each]
            row.append(_number(median(values)) if values else "")
            if name in ratios:
                row.append(_ratio([each.get(name, 0) for each in base], values, ratios[name]))
        rows.append([*row, str(case.goal)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *row in rows:
        cells = (each.rjust(width) for each, width in zip(row, widths[1:], strict=True))
        print("  ".join((name.ljust(widths[0]), *cells)))
    print(flush=True)


def _number(value: float) -> str:
    digits = 0 if abs(value) >= 1_000 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 or not value else 4
    return f"{value:,.{digits}f}"


def _ratio(base: Sequence[float], values: Sequence[float], power: int) -> str:
    """Return the median ratio, and between which ratios it lies in 19 of 20 cases."""
    found = sorted((value / of) ** power for of, value in zip(base, values, strict=False) if of and value)
    if not found:
        return ""
    half, away = len(found) / 2, sqrt(len(found))
    low, high = (found[min(max(0, int(at)), len(found) - 1)] for at in (half - away, half + away))
    return f"{median(found):.2f}" + (f" ({low:.2f}-{high:.2f})" if len(found) > 1 else "")


def at_quantiles(values: Sequence[float]) -> Figures:
    """Return the usual quantiles of milliseconds."""
    ascending = sorted(values)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "longest": 1.0}
    return {name: ascending[min(int(len(ascending) * share), len(ascending) - 1)] for name, share in shares.items()}


def milliseconds(began: Mapping[str, float], ended: Mapping[str, float]) -> Figures:
    """Return the quantiles of what began after the warm-up, unless it is only one, and has ended."""
    counts_from = min(began.values()) + (WARM_UP_SECONDS if len(began) > 1 else 0)
    return at_quantiles([(ended[each] - at) * 1_000 for each, at in began.items() if each in ended and at >= counts_from])


def steadily(values: Sequence[T], rate: float) -> Iterator[T]:
    """Yield the values at so many a second; catch up after a delay."""
    began = time.monotonic()
    for number, each in enumerate(values):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        yield each


@contextmanager
def directory(parent: Path | None = None) -> Iterator[Path]:
    """Yield a directory whose content ends with the benchmark."""
    with TemporaryDirectory(prefix="resequencer-benchmark-", dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name)


# Processes


def apart(function: Callable[..., T], *given: Any) -> T:
    """Call the function in a process of its own."""
    with get_context("spawn").Pool(1) as processes:
        return processes.apply(function, given)


class Spent(NamedTuple):
    """Seconds of wall time, and CPU seconds of this process."""

    wall: float
    cpu: float

    def of_each(self, count: float) -> Figures:
        """Return the speed and the CPU of each of so many."""
        return {"per s": count / self.wall, "CPU us": self.cpu / count * 1e6}


class Stopwatch:
    """Measures from its creation to `spent`."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        return Spent(time.perf_counter() - self._wall, time.process_time() - self._cpu)


class Watched:
    """Samples the memory of this process and its descendants until the context ends, without pages that a file backs."""

    def __init__(self) -> None:
        self._peaks: defaultdict[str, int] = defaultdict(int)
        self._cpu = cpu_of_family(os.getpid())
        self._ending = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Watched":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def figures(self, seconds: float, count: int, each: str) -> Figures:
        """Return the speed of a Spark job, the CPU since the begin, and the peaks in MB: JVM, driver's Python, Python workers."""
        cpu = cpu_of_family(os.getpid()) - self._cpu
        workers = sum(size for name, size in self._peaks.items() if name.startswith("python"))
        sizes = {"JVM MB": self._peaks["java"], "driver MB": self._peaks["self"], "workers MB": workers}
        speed = {"s": seconds, f"{each}s/s": count / seconds, f"CPU us per {each}": cpu / count * 1e6}
        return speed | {name: size / 1e6 for name, size in sizes.items()}

    def _run(self) -> None:
        while not self._ending.wait(_PAUSE_SECONDS):
            sizes: defaultdict[str, int] = defaultdict(int)
            for process in (os.getpid(), *_descendants(os.getpid())):
                with suppress(FileNotFoundError, ProcessLookupError):
                    status = Path(f"/proc/{process}/status").read_text()
                    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
                    name = "self" if process == os.getpid() else fields["Name"]
                    sizes[name] += int(fields.get("RssAnon", "0 kB").split()[0]) * 1_024
            for name, size in sizes.items():
                self._peaks[name] = max(self._peaks[name], size)


def spark_options(place: Path) -> dict[str, str]:
    """Return the options of a Spark session with the memory that conf/lookups.conf gives it, and its files in a directory."""
    return {"spark.driver.memory": "2g", "spark.local.dir": str(place)}


def resident(process: int) -> int:
    """Return the bytes of a process in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_of_family(process: int) -> float:
    """Return the CPU seconds of a process, of its children that have ended, and of its descendants, by proc(5)."""
    spent = 0
    for each in (process, *_descendants(process)):
        with suppress(FileNotFoundError, ProcessLookupError):
            spent += sum(map(int, Path(f"/proc/{each}/stat").read_bytes().rpartition(b")")[2].split()[11:15]))
    return spent / os.sysconf("SC_CLK_TCK")


def _descendants(process: int) -> Iterator[int]:
    with suppress(FileNotFoundError, ProcessLookupError):
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        for child in [int(child) for task in tasks for child in (task / "children").read_text().split()]:
            yield child
            yield from _descendants(child)
