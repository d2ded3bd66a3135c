"""What building lookups of very many customers costs: `python -m benchmarks.lookups_scale [--help]`; needs the extra `pipeline`.

For each number of rows Spark writes a table of customers. 3 % of its rows are older rows of other keys, and one customer has a
million rows (at most a tenth), each with another valid-from day. Then the job builds a release in a process of its own, with the
memory of `conf/lookups.conf`. CPU is that of all its processes. Memory excludes pages that a file backs: of the JVM (driver and
executor in one), of the driver's Python, and of all Python workers together. Ratios are per row, to the first number of rows:
linear cost stays at 1. Afterwards random keys are looked up in the release.
"""

import random
from functools import partial
from pathlib import Path

from benchmarks._runner import Case, Figures, Stopwatch, Watched, WrongResult, apart, arguments, directory, measure, spark_options
from notification_service.jobs.lookups.job import build_lookups
from notification_service.jobs.spark.job_settings import JobSettings, SourceSettings
from notification_service.jobs.spark.session import spark_session
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.release import open_release
from notification_service.lookups.shapes import CUSTOMERS, key_of
from notification_service.supervision.system_clock import SystemClock

MAX_OF_ONE = 1_000_000
GOAL = "at most 1.2"
_OLDER_EVERY = 33
_SAMPLE = 2_000


def customer(number: int) -> tuple[str, str]:
    """Return a customer's key; every second one is known by an account, the others by an id, in no order."""
    mixed = number * 2_654_435_761 % 2**32
    return ("account", f"DE{number % 97:02}{mixed:010}{number:010}") if number % 2 else ("party", f"KD-{mixed:010}-{number}")


def make_source(place: Path, rows: int) -> None:
    """Make the same customers as `customer` with Spark."""
    one = min(MAX_OF_ONE, rows // 10)
    is_older = f"id >= {one} AND id % {_OLDER_EVERY} = 1"
    number = f"CASE WHEN id < {one} THEN 0 WHEN {is_older} THEN id - 1 ELSE id END"
    days = f"CASE WHEN id < {one} THEN id % 700000 WHEN {is_older} THEN 4000 + id % 3000 ELSE id % 3000 END"
    with spark_session("local[*]", spark_options(place)) as spark:
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
        table.write.parquet(str(place / "source"))


def build(place: Path, rows: int) -> Figures:
    source = SourceSettings("parquet", str(place / "source"), columns={"processing_entity": "entity"})
    settings = JobSettings(place / "lookups", 1, {CUSTOMERS: (source,)}, master="local[*]", spark=spark_options(place))
    with Watched() as watched, spark_session(settings.master, settings.spark) as spark:
        watch = Stopwatch()
        (lookup,) = build_lookups(spark, settings, SystemClock().now(), "benchmark", lambda _: None).lookups
        figures = watched.figures(watch.spent().wall, rows, "row")
    _check(LookupsDirectory(settings.directory), rows)
    size = sum(file.stat().st_size for file in (place / "source").rglob("*"))
    return {"keys": lookup.keys, **figures, "source MB": size / 1e6, "release MB": lookup.bytes / 1e6}


def _check(releases: LookupsDirectory, rows: int) -> None:
    """Check that the newest row of each customer is found, and that other keys are not."""
    release = open_release(releases, releases.get_current())
    one, chance = min(MAX_OF_ONE, rows // 10), random.Random(1)
    for number in (0, *(chance.randrange(one, rows) for _ in range(_SAMPLE))):
        is_there = number == 0 or number % _OLDER_EVERY != 1
        found = release.find(CUSTOMERS, key_of(*customer(number)))
        if (found is not None) != is_there:
            raise WrongResult(f"{customer(number)} of row {number}: {found!r}")
    release.close()


def measured(rows: int) -> Figures:
    with directory() as place:
        apart(make_source, place, rows)
        return apart(build, place, rows)


def main() -> None:
    chosen = arguments(__doc__, large={"rows": [1_000_000, 10_000_000, 50_000_000]}, rows=[100_000, 1_000_000])
    first = f"{chosen.rows[0]:,} rows"
    cases = [Case(f"{rows:,} rows", partial(measured, rows), first, GOAL) for rows in chosen.rows]
    measure(chosen, cases, {"CPU us per row": 1})


if __name__ == "__main__":
    main()
