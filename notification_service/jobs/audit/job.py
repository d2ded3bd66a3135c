"""The Spark job: groups output and input records by unit, checks each unit in a task, and writes the findings as tables.

Files do not record when a record was written or read. But output caused by a later record of the partition was made later.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.groups.job import audit_groups
from notification_service.jobs.audit.row_audit import ARRIVAL, FINDING, PAUSED, PUBLISHED, WAITING, ResultRow, audit_rows
from notification_service.jobs.audit.rules import AuditRules, AuditSettings
from notification_service.jobs.audit.scopes import Scope
from notification_service.jobs.audit.tables import RESULT_ROW, result_batches, rows_of
from notification_service.jobs.errors import AuditRefused
from notification_service.jobs.spark.counted_write import Batches, Step, spark_schema, write_rows
from notification_service.jobs.spark.session import SPARK_ERRORS, cause_of
from resequencer.clock import Instant
from resequencer.gc_tuning import calm_collector

SUMMARY, PAGE = "summary.json", "page.html"
_BUILDING = ".building"


def begin_results(target: Path) -> Path:
    """Return an empty directory to write to; files of an audit that was killed there are deleted."""
    building = target / _BUILDING
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    return building


def publish_results(target: Path) -> None:
    """Replace the last audit's results by those in the writing directory.

    The verdict is deleted first and written last. So a crash here leaves no verdict, and never one beside another audit's tables.
    """
    building = target / _BUILDING
    for verdict in (SUMMARY, PAGE):
        (target / verdict).unlink(missing_ok=True)
    shutil.rmtree(target / RESULT, ignore_errors=True)
    for name in (RESULT, PAGE, SUMMARY):
        (building / name).rename(target / name)
    building.rmdir()


BUCKETS = 1_024
"""The number of buckets that a partition is cut into. A bucket's instants bound those of the records in earlier buckets."""


class Made(NamedTuple):
    """The first and last instant at which output was made of the records of one bucket of a partition."""

    partition: int
    bucket: int
    first: Instant
    last: Instant


def bucket_size(length: int) -> int:
    """Return the bucket's size in offsets, for a partition of that length."""
    return max(1, -(-length // BUCKETS))


class Timing:
    """`made` has one entry per bucket. `lengths` holds for each partition the offset after its last envelope that counted.

    `paused` holds for how many milliseconds operators paused a partition, None for one that still is paused.
    """

    def __init__(self, made: Iterable[Made], lengths: Mapping[int, int], paused: Mapping[int, int | None] = {}) -> None:
        self.lengths = lengths
        self.paused = paused
        self._sizes = {partition: bucket_size(length) for partition, length in lengths.items()}
        self._last: dict[int, Instant] = {}
        self._firsts: dict[int, list[tuple[int, Instant]]] = {}
        for each in sorted(made, reverse=True):
            self._last[each.partition] = max(each.last, self._last.get(each.partition, each.last))
            firsts = self._firsts.setdefault(each.partition, [])
            firsts.append((each.bucket, min(each.first, firsts[-1][1]) if firsts else each.first))

    def find_waited_ms(self, partition: int, offset: int) -> int | None:
        """Return how long a record has at least waited when its partition last made output; None if unknown."""
        bucket = offset // self._sizes.get(partition, 1)
        # Buckets descend, and instants descend with them.
        later = [first for each, first in self._firsts.get(partition, ()) if each > bucket]
        return self._last[partition] - later[-1] if later else None


def overdue(waiting: Iterable[ResultRow], timing: Timing, settings: AuditSettings) -> Iterator[ResultRow]:
    """Yield a finding for each. Only partitions read to their end count: what waits for a backlog is not overdue.

    A deadline pauses while its partition is paused.
    """
    bound_ms = settings.resequencer.longest_deadline_ms + settings.grace_ms
    for each in waiting:
        assert each.partition is not None
        assert each.offset is not None
        if settings.settled.get(each.partition, 0) < timing.lengths.get(each.partition, 0):
            continue
        paused_ms = timing.paused.get(each.partition, 0)
        if paused_ms is None:
            continue
        waited_ms = timing.find_waited_ms(each.partition, each.offset)
        if waited_ms is not None and waited_ms > bound_ms + paused_ms + (each.waited_ms or 0):
            what = f"it has waited for {each.what} for at least {waited_ms / 1_000:,.0f} s, and no output shows its release"
            yield ResultRow(FINDING, each.unit, each.partition, each.offset, Deviation.OVERDUE.value, what)


RESULT = "result"
"""The directory of the tables: Parquet, one per kind (`kind=finding`, `kind=unit`, …)."""

_LAYOUT = ("kind",)

_TASK_BYTES = 64 * 1024 * 1024
"""About how many bytes of input each checking task gets. A task sorts its rows, and may do so on disk."""

_AT_ONCE = "spark.sql.maxConcurrentOutputFileWriters"
"""The number of files that a task writes at once. With fewer the task would first sort all its rows by table."""


def audit_records(spark: SparkSession, scope: Scope, settings: AuditSettings, target: Path) -> DataFrame:
    """Write the tables under `target`, replacing earlier ones. The tasks must see `target` under the same path.

    Raises:
        AuditRefused: Input vanished or cannot be read, or there is no space.
        NotShared: The tasks do not share the target directory.
    """
    tasks = max(spark.sparkContext.defaultParallelism, scope.size // _TASK_BYTES)
    result = (target / RESULT).absolute().as_uri()
    spark.conf.set(_AT_ONCE, "8")
    try:
        written = write_rows(_audited(scope.rows(settings), settings, tasks), result, "overwrite", _LAYOUT)
        rows = _read(spark, result)
        if not (waiting := rows.where(F.col("kind") == WAITING)).isEmpty():
            found = waiting.mapInArrow(_overdue(_timing(rows), settings), spark_schema(RESULT_ROW))
            written += write_rows(found, result, "append", _LAYOUT, before=written)
        if scope.groups is not None:
            of_groups = audit_groups(scope.groups, _read(spark, result), settings)
            write_rows(of_groups, result, "append", _LAYOUT, before=written)
            spark.catalog.clearCache()
        return _read(spark, result)
    except SPARK_ERRORS as error:
        raise AuditRefused(f"Spark failed: {cause_of(error)}") from error


def _audited(rows: DataFrame, settings: AuditSettings, tasks: int) -> DataFrame:
    """Check each unit record by record, so that a large unit costs time, not memory. Rows sort faster by hash than by name."""
    whose = ("partition", "unit")
    placed = rows.repartition(tasks, *whose).sortWithinPartitions(F.xxhash64(*whose), *whose, "kind", "place")
    return placed.mapInArrow(_audit(settings), spark_schema(RESULT_ROW))


def _audit(settings: AuditSettings) -> Step:
    def audit_all(batches: Batches) -> Iterator[pa.RecordBatch]:
        calm_collector()
        yield from result_batches(audit_rows(rows_of(batches), AuditRules(settings)))

    return audit_all


def _timing(rows: DataFrame) -> Timing:
    """Collect the timing, with one row per bucket of a partition."""
    ends = rows.where(F.col("kind") == ARRIVAL).groupBy("partition").agg((F.max("offset") + 1).alias("length"))
    bucket = F.floor(F.col("offset") / F.ceil(F.col("length") / BUCKETS)).cast("long").alias("bucket")
    made = rows.where((F.col("kind") == PUBLISHED) & F.col("made_at").isNotNull()).join(F.broadcast(ends), "partition")
    gathered = made.groupBy("partition", bucket).agg(F.min("made_at"), F.max("made_at"))
    lengths = {row.partition: row.length for row in ends.collect()}
    paused = {row.partition: row.waited_ms for row in rows.where(F.col("kind") == PAUSED).collect()}
    return Timing((Made(*row) for row in gathered.collect()), lengths, paused)


def _overdue(timing: Timing, settings: AuditSettings) -> Step:
    def find(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # The kind is the table's partition column, so it comes after the other columns here; hence the names.
            yield from result_batches(overdue((ResultRow(**each) for each in batch.to_pylist()), timing, settings))

    return find


def _read(spark: SparkSession, result: str) -> DataFrame:
    return spark.read.schema(spark_schema(RESULT_ROW)).parquet(result)
