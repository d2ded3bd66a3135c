"""What building lookups of very many customers costs: `python -m benchmarks.lookups_scale [--help]`; needs the extra `pipeline`.

For each number of rows Spark writes a table of customers. 3 % of its rows are older rows of other keys, and one customer has a
million rows (at most a tenth), each with another valid-from day. Then the job builds a release in a process of its own, with the
memory of `conf/lookups.conf`. CPU seconds are those of all its processes. Memory excludes pages that a file backs: of the JVM
(driver and executor in one), of the driver's Python, and of all Python workers together. Ratios are per row, to the first number
of rows: linear cost stays at 1. Afterwards random keys are looked up in the release.
"""

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from benchmarks._processes import Watched
from notification_service.jobs.lookups.job import build_lookups
from notification_service.jobs.spark.job_settings import JobSettings, SourceSettings
from notification_service.jobs.spark.session import spark_session
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.release import open_release
from notification_service.lookups.shapes import CUSTOMERS, key_of
from notification_service.supervision.system_clock import SystemClock

MAX_OF_ONE = 1_000_000
_OLDER_EVERY = 33
_SAMPLE = 2_000


class Measured(msgspec.Struct, frozen=True):
    """Seconds, and bytes."""

    rows: int
    keys: int
    reading_seconds: float
    seconds: float
    cpu_seconds: float
    source_bytes: int
    release_bytes: int
    jvm_bytes: int
    driver_bytes: int
    workers_bytes: int


def customer(number: int) -> tuple[str, str]:
    """Return a customer's key; every second one is known by an account, the others by an id, in no order."""
    mixed = number * 2_654_435_761 % 2**32
    return ("account", f"DE{number % 97:02}{mixed:010}{number:010}") if number % 2 else ("party", f"KD-{mixed:010}-{number}")


def make_source(directory: Path, rows: int, form: str, master: str, options: dict[str, str]) -> None:
    """Make the same customers as `customer` with Spark."""
    one = min(MAX_OF_ONE, rows // 10)
    is_older = f"id >= {one} AND id % {_OLDER_EVERY} = 1"
    number = f"CASE WHEN id < {one} THEN 0 WHEN {is_older} THEN id - 1 ELSE id END"
    days = f"CASE WHEN id < {one} THEN id % 700000 WHEN {is_older} THEN 4000 + id % 3000 ELSE id % 3000 END"
    with spark_session(master, options) as spark:
        numbered = spark.range(rows).selectExpr("id", f"{number} AS number", f"CAST({days} AS int) AS days")
        mixed = numbered.selectExpr("*", "lpad(number * 2654435761 % 4294967296, 10, '0') AS mixed")
        table = mixed.selectExpr(
            "CASE WHEN number % 2 = 0 THEN concat('KD-', mixed, '-', number) END AS initiating_party",
            "CASE WHEN number % 2 = 1 THEN concat('DE', lpad(number % 97, 2, '0'), mixed, lpad(number, 10, '0')) END AS account",
            "concat('BANK_00', number % 3 + 1) AS entity",
            "element_at(array('de', 'en', 'de-AT', 'fr'), CAST(number % 4 + 1 AS int)) AS language",
            "CASE WHEN number % 5 > 0 THEN if(id % 2 = 0, 'email', 'push') END AS channel",
            "CASE WHEN number % 3 = 0 THEN 'ACSC RJCT' END AS statuses",
            "CAST(date_sub(DATE'2026-01-01', days) AS string) AS valid_from",
        )
        getattr(table.write, form)(str(directory), **({"header": True} if form == "csv" else {}))


def measure(directory: Path, rows: int, form: str, master: str, options: dict[str, str]) -> Measured:
    columns = {"processing_entity": "entity"}
    source = directory / "source"
    settings = JobSettings(
        directory / "lookups", 1, {CUSTOMERS: (SourceSettings(form, str(source), columns=columns),)}, master=master, spark=options
    )
    steps: list[float] = []
    with Watched() as watched, spark_session(master, options) as spark:
        ready = time.perf_counter()
        built = build_lookups(spark, settings, SystemClock().now(), "benchmark", lambda _: steps.append(time.perf_counter()))
        ended = time.perf_counter()
        used = watched.used()
    (lookup,) = built.lookups
    check(LookupsDirectory(settings.directory), rows)
    return Measured(
        rows,
        lookup.keys,
        steps[1] - ready,
        ended - ready,
        used.cpu_seconds,
        sum(file.stat().st_size for file in source.rglob("*")),
        lookup.bytes,
        used.peak("java"),
        used.own_peak,
        used.peak("python"),
    )


def check(directory: LookupsDirectory, rows: int) -> None:
    """Check that the newest row of each customer is found, and that other keys are not."""
    release = open_release(directory, directory.get_current())
    one, chance = min(MAX_OF_ONE, rows // 10), random.Random(1)
    for number in (0, *(chance.randrange(one, rows) for _ in range(_SAMPLE))):
        is_there = number == 0 or number % _OLDER_EVERY != 1
        found = release.find(CUSTOMERS, key_of(*customer(number)))
        assert (found is not None) == is_there, f"{customer(number)} of row {number}: {found!r}"
    release.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument(
        "--large", action="store_const", const=[1_000_000, 10_000_000, 50_000_000], dest="rows", help="1, 10, 50 million"
    )
    parser.add_argument("--format", choices=["parquet", "csv"], default="parquet")
    parser.add_argument("--master", default="local[*]")
    parser.add_argument("--memory", default="2g", help="memory of the JVM (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="a directory with 500 bytes of space per row (default: a temporary one)")
    parser.add_argument("--step", choices=["make", "measure"], help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step:
        _step(chosen)
        return
    print(f"{'rows':>12}{'keys':>12}{'s':>8}{'reading':>9}{'rows/s':>9}{'CPU us/row':>12}{'of first':>9}{'goal':>6}", end="")
    print(f"{'source':>9}{'release':>9}{'JVM':>7}{'driver':>8}{'workers':>9}  MB", flush=True)
    first: Measured | None = None
    for rows in chosen.rows:
        measured = _in_turn(chosen, rows)
        first = first or measured
        _show(measured, first)


def _step(chosen: argparse.Namespace) -> None:
    (rows,) = chosen.rows
    options = {"spark.driver.memory": chosen.memory, "spark.local.dir": str(chosen.directory / "spark")}
    if chosen.step == "make":
        make_source(chosen.directory / "source", rows, chosen.format, chosen.master, options)
    else:
        found = measure(chosen.directory, rows, chosen.format, chosen.master, options)
        sys.stdout.write(msgspec.json.encode(found).decode())


def _in_turn(chosen: argparse.Namespace, rows: int) -> Measured:
    with TemporaryDirectory(prefix="resequencer-benchmark-", dir=chosen.directory) as directory:
        same = ["--rows", rows, "--format", chosen.format, "--master", chosen.master, "--memory", chosen.memory]
        command = [sys.executable, "-m", "benchmarks.lookups_scale", *map(str, same), "--directory", directory]
        subprocess.run([*command, "--step", "make"], check=True)
        done = subprocess.run([*command, "--step", "measure"], check=True, stdout=subprocess.PIPE)
    return msgspec.json.decode(done.stdout, type=Measured)


def _show(measured: Measured, first: Measured) -> None:
    per_row = measured.cpu_seconds / measured.rows * 1e6
    ratio = per_row / (first.cpu_seconds / first.rows * 1e6)
    print(f"{measured.rows:12,}{measured.keys:12,}{measured.seconds:8.1f}{measured.reading_seconds:9.1f}", end="")
    print(f"{measured.rows / measured.seconds:9,.0f}{per_row:12.1f}{ratio:9.2f}{1.2:6}", end="")
    sizes: Sequence[int] = (measured.source_bytes, measured.release_bytes)
    memory: Sequence[int] = (measured.jvm_bytes, measured.driver_bytes, measured.workers_bytes)
    widths = (9, 9, 7, 8, 9)
    print("".join(f"{size / 1e6:{width},.0f}" for size, width in zip((*sizes, *memory), widths, strict=True)), flush=True)


if __name__ == "__main__":
    main()
