"""How fast an audit is, and what memory it needs: `python -m benchmarks.audit_scale [--help]`; `make audit` installs Spark.

The input is an archive of `--envelopes`, made of one run of the service and variations of it (`_runs.py`), in Parquet with the
columns of the topics' archive. `--one-unit` adds one unit of so many envelopes. The audit must find no deviation. Then one
notification of the last run is omitted, and the audit must find exactly that.

The audit is compared with a bare read of the same archive by Spark. Memory excludes pages that a file backs: of the JVM (driver
and executor in one), of the driver's Python, and of all Python workers together.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._runner import ROOT, Case, Figures, Stopwatch, Watched, WrongResult, arguments, directory, measure
from benchmarks._runs import Row, Run, one_run, published_of, published_of_one_unit, received_of, received_of_one_unit
from benchmarks._workload import CONFIGURATION, override
from notification_service.commands.audit import audit_settings
from notification_service.configuration.configuration import load

INPUT, OUTPUT = "input", "output"
_BATCH = 2_000
_SCHEMA = "partition int, offset long, timestamp long, key binary, value binary, headers array<struct<key:string,value:binary>>"


class Archive(NamedTuple):
    """An archive of so many runs, and one unit of so many envelopes, in a directory."""

    run: Run
    runs: int
    one_unit: int
    directory: Path

    @property
    def envelopes(self) -> int:
        return self.runs * len(self.run.received) + self.one_unit

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(each.stat().st_size for each in self.directory.rglob("*.parquet"))

    def rows(self, side: str, number: int) -> Iterator[Row]:
        """Return the rows of a run; the one unit comes after the last run."""
        if number == self.runs:
            return (received_of_one_unit if side == INPUT else published_of_one_unit)(self.run, self.one_unit)
        return (received_of if side == INPUT else published_of)(self.run, number)

    def write(self, spark: Any) -> None:
        for side in (INPUT, OUTPUT):
            count = self.runs + bool(self.one_unit)
            numbers = spark.range(0, count, 1, min(count, max(2, count // 64)))
            numbers.mapInArrow(partial(_written, self, side), _SCHEMA).write.parquet(str(self.directory / side))


def _written(archive: Archive, side: str, batches: Any) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            rows = archive.rows(side, number)
            while taken := list(islice(rows, _BATCH)):
                yield _batch(taken)


def _batch(rows: Sequence[Row]) -> Any:
    import pyarrow as pa

    starts, names, values = [0], list[str](), list[bytes]()
    for row in rows:
        names += [name for name, _ in row.headers]
        values += [value for _, value in row.headers]
        starts.append(len(names))
    named = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(values, pa.binary())], ["key", "value"])
    kinds = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
    columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)]
    headers = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), named)
    return pa.RecordBatch.from_arrays([*columns, headers], names=[*Row._fields])


def audit(spark: Any, archive: Archive, name: str, is_taken: Any = None, is_omitted: Any = None) -> Any:
    """Return the summary of an audit of all rows, or of those that are taken."""
    from notification_service.jobs.audit.counting import summarize
    from notification_service.jobs.audit.job import audit_records
    from notification_service.jobs.audit.record_rows import Topics, record_rows
    from notification_service.jobs.audit.scopes import Scope

    received, published = (spark.read.schema(_SCHEMA).parquet(str(archive.directory / side)) for side in (INPUT, OUTPUT))
    if is_taken is not None:
        received, published = received.where(is_taken), published.where(is_taken).where(~is_omitted)
    topics = Topics(received, published, spark.createDataFrame([], _SCHEMA))
    settings = audit_settings(
        load(CONFIGURATION, [override("run-directory", archive.directory)]), dict.fromkeys(range(16), 1 << 60)
    )
    scope = Scope({}, 2_400 * archive.envelopes, lambda judged_by: record_rows(topics, judged_by))
    return summarize(audit_records(spark, scope, settings, archive.directory / name))


def robbed(spark: Any, archive: Archive) -> dict[str, int]:
    """Return the findings in the last run without one of its notifications."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere where Spark is.

    rows = list(archive.rows(OUTPUT, archive.runs - 1))
    gone, name = rows[len(rows) // 2], b"run-%d-" % (archive.runs - 1)
    is_gone = (F.col("partition") == gone.partition) & (F.col("offset") == gone.offset)
    return _found(audit(spark, archive, "robbed", F.startswith(F.col("key"), F.lit(name)), is_gone))


def bare_read(spark: Any, archive: Archive) -> None:
    for side in (INPUT, OUTPUT):
        spark.read.schema(_SCHEMA).parquet(str(archive.directory / side)).write.format("noop").mode("overwrite").save()


def _found(summary: Any) -> dict[str, int]:
    return {name: count for name, count in summary.counts.items() if count}


def read(spark: Any, archive: Archive) -> Figures:
    watch = Stopwatch()
    bare_read(spark, archive)
    return {"s": watch.spent().wall}


def audited(spark: Any, archive: Archive) -> Figures:
    with Watched() as watched, directory(archive.directory) as place:
        watch = Stopwatch()
        summary = audit(spark, archive, place.name)
        seconds, cpu = watch.spent().wall, watched.cpu
    if _found(summary) or summary.open:
        raise WrongResult(f"deviations: {_found(summary)}, {summary.open} open")
    count = archive.envelopes
    speed = {"envelopes/s": count / seconds, "CPU us of an envelope": cpu / count * 1e6}
    return {"s": seconds, **speed, **watched.figures(), "units": summary.units, "notifications": summary.notifications}


def main() -> None:
    large = {"envelopes": 10_000_000}
    given = {"envelopes": 100_000, "one_unit": 0, "master": "local[*]", "directory": None, "memory": "2g"}
    chosen = arguments(__doc__, large=large, **given)
    from notification_service.jobs.spark.session import spark_session

    os.environ["PYTHONPATH"] = str(ROOT)  # Spark's Python workers import this module.
    with directory(chosen.directory) as place:
        run = one_run()
        archive = Archive(run, max(1, round(chosen.envelopes / len(run.received))), chosen.one_unit, place)
        with spark_session(chosen.master, {"spark.driver.memory": chosen.memory, "spark.local.dir": str(place)}) as spark:
            archive.write(spark)
            print(f"{archive.envelopes:,} envelopes in {archive.runs:,} runs, {archive.size / 1e6:,.0f} MB", flush=True)
            bare, judged = partial(read, spark, archive), partial(audited, spark, archive)
            measure(chosen, [Case("bare read", bare), Case("audit", judged, "bare read")], {"s": 1})
            if (found := robbed(spark, archive)) != {"lost": 1}:
                raise WrongResult(f"with a notification omitted: {found or 'nothing found'}")


if __name__ == "__main__":
    main()
