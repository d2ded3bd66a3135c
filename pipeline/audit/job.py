"""The job: brings what was let out and what arrived together by unit, in tasks, and writes what is found as tables."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipeline.audit.errors import AuditRefused
from pipeline.audit.judging import FINDING, WAITING, Told, judge_rows
from pipeline.audit.lines import FileScope, Portion, read_portion
from pipeline.audit.overdue import made_of, overdue
from pipeline.audit.rows import NOTIFICATION, Row
from pipeline.audit.rules import AuditRules, AuditSettings
from pipeline.audit.timing import Made, Timing, gathered
from pipeline.spark_errors import SPARK_ERRORS, cause_of

RESULT = "result"
"""The directory of the tables: Parquet, one per kind (`kind=finding`, `kind=unit`, …)."""

_ROW = pa.schema(
    [
        ("partition", pa.int32()),
        ("unit", pa.string()),
        ("kind", pa.int32()),
        ("place", pa.int64()),
        ("at", pa.int64()),
        ("payload", pa.binary()),
    ]
)
_TOLD = pa.schema(
    [
        ("kind", pa.string()),
        ("unit", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("deviation", pa.string()),
        ("what", pa.string()),
        ("open", pa.int32()),
        ("flow", pa.string()),
        ("depth", pa.int64()),
        ("behind", pa.int64()),
        ("late_ms", pa.int64()),
        ("status", pa.string()),
        ("made_at", pa.int64()),
        ("waited_ms", pa.int64()),
        ("waited_records", pa.int64()),
        ("is_incomplete", pa.bool_()),
        ("is_late", pa.bool_()),
        ("is_compared", pa.bool_()),
    ]
)
_MADE = pa.schema([("partition", pa.int32()), ("bucket", pa.int64()), ("first", pa.int64()), ("last", pa.int64())])
_BATCH_ROWS = 2_000
_BATCH_BYTES = 16 * 1024 * 1024
_TASK_BYTES = 64 * 1024 * 1024
"""About so much of the files for each task that judges: a task sorts what it has, and may do so on disk."""

Batches = Iterable[pa.RecordBatch]


def audit_files(spark: SparkSession, scope: FileScope, settings: AuditSettings, target: Path) -> DataFrame:
    """The tables under `target`, which the tasks see under the same path; what was there before is replaced.

    Raises:
        AuditRefused: A file vanished or cannot be read, or there is no room.
    """
    tasks = max(spark.sparkContext.defaultParallelism, scope.size // _TASK_BYTES)
    rows = _listed(spark, scope.portions).mapInArrow(_reader(settings), _spark_schema(_ROW))
    result = (target / RESULT).absolute().as_uri()
    try:
        _write(_judged(rows, settings, tasks), result, "overwrite")
        if not (waiting := _read(spark, result).where(F.col("kind") == WAITING)).isEmpty():
            timing = Timing(_made(spark, scope, settings), scope.lengths)
            _write(waiting.mapInArrow(_overdue(timing, scope.lengths, settings), _spark_schema(_TOLD)), result, "append")
        return _read(spark, result)
    except SPARK_ERRORS as error:
        raise AuditRefused(f"Spark failed: {cause_of(error)}") from error


def _judged(rows: DataFrame, settings: AuditSettings, tasks: int) -> DataFrame:
    """A unit is taken record by record: its size costs time, not memory."""
    placed = rows.repartition(tasks, "partition", "unit").sortWithinPartitions("partition", "unit", "kind", "place")
    return placed.mapInArrow(_judge(settings), _spark_schema(_TOLD))


def _made(spark: SparkSession, scope: FileScope, settings: AuditSettings) -> list[Made]:
    """When something was made of which records: a row per piece of a partition and portion of the output."""
    portions = [each for each in scope.portions if each.kind == NOTIFICATION]
    rows = _listed(spark, portions).mapInArrow(_maker(scope.lengths, settings), _spark_schema(_MADE)).collect()
    return [Made(*row) for row in rows]


def _write(told: DataFrame, result: str, mode: str) -> None:
    told.write.mode(mode).partitionBy("kind").parquet(result)


def _read(spark: SparkSession, result: str) -> DataFrame:
    return spark.read.schema(_spark_schema(_TOLD)).parquet(result)


def findings(result: DataFrame) -> DataFrame:
    """What deviates, in an order that stays."""
    columns = ("deviation", "unit", "partition", "offset", "what")
    return result.where(F.col("kind") == FINDING).select(*columns).orderBy(*columns)


def _listed(spark: SparkSession, portions: Sequence[Portion]) -> DataFrame:
    """A task for each."""
    names = ("kind", "path", "partition", "start", "end", "limit", "base", "is_packed", "begins_line", "inode")
    kinds = ["int", "string", "int", "long", "long", "long", "long", "boolean", "boolean", "long"]
    schema = ", ".join(["number int", *(f"`{name}` {kind}" for name, kind in zip(names, kinds, strict=True))])
    rows = [(number, *portion) for number, portion in enumerate(portions)]
    return spark.createDataFrame(rows, schema).repartitionById(max(1, len(rows)), F.col("number")).drop("number")


def _reader(settings: AuditSettings) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        decoder = AuditRules(settings).decoder
        for batch in batches:
            for each in batch.to_pylist():
                rows = read_portion(Portion(**each), settings.topic, settings.max_value_bytes, decoder)
                yield from _batches(rows, _ROW)

    return read


def _maker(lengths: dict[int, int], settings: AuditSettings) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def make(batches: Batches) -> Iterator[pa.RecordBatch]:
        decoder = AuditRules(settings).decoder
        for batch in batches:
            for each in batch.to_pylist():
                rows = read_portion(Portion(**each), settings.topic, settings.max_value_bytes, decoder)
                yield from _batches(iter(gathered(made_of(rows, lengths))), _MADE)

    return make


def _overdue(timing: Timing, lengths: dict[int, int], settings: AuditSettings) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def find(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            # The kind is a partition of the table, and stands behind the other columns there.
            waiting = (Told(**each) for each in batch.to_pylist())
            yield from _batches(overdue(waiting, timing, lengths, settings), _TOLD)

    return find


def _judge(settings: AuditSettings) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def judge_all(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from _batches(judge_rows(_rows(batches), AuditRules(settings)), _TOLD)

    return judge_all


def _rows(batches: Batches) -> Iterator[Row]:
    for batch in batches:
        yield from map(Row._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _batches(rows: Iterator[NamedTuple], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Few rows at once, and fewer where they are large."""
    while taken := list(_taken(rows)):
        columns = [pa.array(column, kind) for column, kind in zip(zip(*taken, strict=True), schema.types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _taken(rows: Iterator[Any]) -> Iterator[Any]:
    size = 0
    for row in islice(rows, _BATCH_ROWS):
        yield row
        size += len(row.payload) if isinstance(row, Row) else 0
        if size > _BATCH_BYTES:
            return


def _spark_schema(schema: pa.Schema) -> str:
    names = {"int32": "int", "int64": "long", "bool": "boolean"}
    return ", ".join(f"`{field.name}` {names.get(str(field.type), str(field.type))}" for field in schema)
