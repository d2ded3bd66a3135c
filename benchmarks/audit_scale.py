"""How fast an audit is, and what memory it needs: `python -m benchmarks.audit_scale [--help]`; `make audit` installs Spark.

The input is an archive of `--envelopes`, made of one run of the service and variations of it (`_runs.py`), in Parquet with the
columns of the topics' archive. `--one-unit` adds one unit of so many envelopes. The audit must find no deviation. Then one
notification of the last run is left out, and the audit must find exactly that.

The audit is compared with a bare read of the same archive by Spark. Memory is the highest resident size: of the JVM (driver and
executor in one), of the driver's Python, and of the largest Python worker.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

from benchmarks._runs import Row, Run, came_of, came_of_one_unit, left_of, left_of_one_unit, one_run
from benchmarks._workload import CONFIGURATION, override
from notification_service.commands.audit import audit_settings
from notification_service.configuration.configuration import load

INPUT, OUTPUT = "input", "output"
_BATCH = 2_000
_SCHEMA = "partition int, offset long, timestamp long, key binary, value binary, headers array<struct<key:string,value:binary>>"
_PAGE_KB = os.sysconf("SC_PAGE_SIZE") // 1_024


class Archive(NamedTuple):
    """An archive of so many runs, and one unit of so many envelopes, in a directory."""

    run: Run
    runs: int
    one_unit: int
    directory: Path

    @property
    def envelopes(self) -> int:
        return self.runs * len(self.run.came) + self.one_unit

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(each.stat().st_size for each in self.directory.rglob("*.parquet"))

    def rows(self, side: str, number: int) -> Iterator[Row]:
        """Return the rows of a run; the one unit comes after the last run."""
        if number == self.runs:
            return (came_of_one_unit if side == INPUT else left_of_one_unit)(self.run, self.one_unit)
        return (came_of if side == INPUT else left_of)(self.run, number)

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


def audit(spark: Any, archive: Archive, name: str, is_taken: Any = None, is_left_out: Any = None) -> Any:
    """Return the summary of an audit of all rows, or of those that are taken."""
    from notification_service.jobs.audit.counting import summarize
    from notification_service.jobs.audit.job import audit_records
    from notification_service.jobs.audit.record_rows import Topics, record_rows
    from notification_service.jobs.audit.scope import Scope

    came, left = (spark.read.schema(_SCHEMA).parquet(str(archive.directory / side)) for side in (INPUT, OUTPUT))
    if is_taken is not None:
        came, left = came.where(is_taken), left.where(is_taken).where(~is_left_out)
    topics = Topics(came, left, spark.createDataFrame([], _SCHEMA))
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
    return _told(audit(spark, archive, "robbed", F.startswith(F.col("key"), F.lit(name)), is_gone))


def bare_read(spark: Any, archive: Archive) -> None:
    for side in (INPUT, OUTPUT):
        spark.read.schema(_SCHEMA).parquet(str(archive.directory / side)).write.format("noop").mode("overwrite").save()


class Watch:
    """Samples this process and its descendants, by kind: highest resident sizes in MB, and CPU seconds since the start."""

    def __init__(self) -> None:
        self.highest = {"jvm": 0, "driver": 0, "task": 0}
        self._begun: dict[int, float] = {}
        self._spent: dict[int, float] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._begun = {each.number: each.seconds for each in _processes()}
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    @property
    def cpu(self) -> float:
        return sum(seconds - self._begun.get(number, 0) for number, seconds in self._spent.items())

    def _watch(self) -> None:
        while not self._is_over.wait(0.5):
            self._look()

    def _look(self) -> None:
        for each in _processes():
            self._spent[each.number] = each.seconds
            self.highest[each.kind] = max(self.highest[each.kind], each.megabytes)


class _Process(NamedTuple):
    number: int
    kind: str
    seconds: float
    megabytes: int


def _processes() -> Iterator[_Process]:
    found: dict[int, tuple[int, str, list[str]]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, fields = each.read_text().partition("(")[2].rpartition(")")
            found[int(each.parent.name)] = (int(fields.split()[1]), name, fields.split())
    for number, (_, name, fields) in found.items():
        above = number
        while above not in (0, os.getpid()):
            above = found.get(above, (0, "", []))[0]
        if above:
            kind = "driver" if number == os.getpid() else "jvm" if name == "java" else "task"
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            yield _Process(number, kind, seconds, int(fields[21]) * _PAGE_KB // 1_024)


def _told(summary: Any) -> dict[str, int]:
    return {name: count for name, count in summary.counts.items() if count}


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    result = run()
    return time.perf_counter() - began, result


def measure(archive: Archive, master: str, options: dict[str, str]) -> bool:
    from notification_service.jobs.spark.session import spark_session

    with spark_session(master, options) as spark:
        seconds, _ = _timed(lambda: archive.write(spark))
        count = archive.envelopes
        print(f"{count:,} envelopes in {archive.runs:,} runs, {archive.size / 1e6:,.0f} MB, made in {seconds:,.0f} s", flush=True)
        bare, _ = _timed(lambda: bare_read(spark, archive))
        with Watch() as watch:
            seconds, summary = _timed(lambda: audit(spark, archive, "audit"))
        print(f"bare read {bare:,.1f} s; audit {seconds:,.1f} s, {seconds / bare:.1f} times that")
        print(f"audit: {count / seconds:,.0f} envelopes/s, {count / watch.cpu:,.0f} per second of CPU ({watch.cpu:,.0f} s)")
        print("highest memory: " + ", ".join(f"{kind} {size:,} MB" for kind, size in watch.highest.items()))
        found, found_robbed = _told(summary), robbed(spark, archive)
        print(f"{summary.units:,} units, {summary.notifications:,} notifications, {summary.open:,} open")
        print(f"deviations: {found or 'none'}; with a notification left out: {found_robbed or 'none'}", flush=True)
        return not found and not summary.open and found_robbed == {"lost": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envelopes", type=int, default=100_000, help="approximate number (default: %(default)s)")
    parser.add_argument("--large", action="store_const", const=10_000_000, dest="envelopes", help="10 000 000, which needs 30 GB")
    parser.add_argument("--one-unit", type=int, default=0, metavar="ENVELOPES", help="add one unit of so many (default: none)")
    parser.add_argument("--master", default="local[*]", help="Spark's master (default: %(default)s)")
    parser.add_argument("--directory", type=Path, help="a directory with enough space (default: the system's temporary one)")
    parser.add_argument("--memory", default="2g", help="memory of the JVM (default: %(default)s)")
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="resequencer-benchmark-", dir=chosen.directory) as directory:
        run = one_run()
        archive = Archive(run, max(1, round(chosen.envelopes / len(run.came))), chosen.one_unit, Path(directory))
        options = {"spark.driver.memory": chosen.memory, "spark.local.dir": directory}
        if not measure(archive, chosen.master, options):
            raise SystemExit(1)


if __name__ == "__main__":
    main()
