"""The rows of an audit in Spark: converted to Arrow batches and back, and portions of files, each for a task of its own."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.audit.lines import Portion
from notification_service.jobs.audit.row_audit import ResultRow
from notification_service.jobs.audit.rows import Row
from notification_service.jobs.spark.counted_write import Batches, batch_of, cells_of

ROW = pa.schema(
    [
        ("partition", pa.int32()),
        ("unit", pa.string()),
        ("kind", pa.int32()),
        ("place", pa.int64()),
        ("at", pa.int64()),
        ("payload", pa.binary()),
    ]
)
RESULT_ROW = pa.schema(
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
        ("behind_ms", pa.int64()),
        ("status", pa.string()),
        ("made_at", pa.int64()),
        ("waited_ms", pa.int64()),
        ("waited_records", pa.int64()),
        ("is_incomplete", pa.bool_()),
        ("is_late", pa.bool_()),
        ("is_compared", pa.bool_()),
        ("lookups_version", pa.string()),
    ]
)
_BATCH_ROWS = 2_000
_BATCH_BYTES = 16 * 1024 * 1024


def rows_of(batches: Batches) -> Iterator[Row]:
    return map(Row._make, cells_of(batches))


def row_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Yield batches of up to 2 000 rows, and of fewer if they are large."""
    taken, size = list[Row](), 0
    for row in rows:
        taken.append(row)
        size += len(row.payload)
        if size > _BATCH_BYTES or len(taken) == _BATCH_ROWS:
            yield batch_of(taken, ROW)
            taken, size = [], 0
    if taken:
        yield batch_of(taken, ROW)


def result_batches(rows: Iterable[ResultRow]) -> Iterator[pa.RecordBatch]:
    remaining = iter(rows)
    while taken := list(islice(remaining, _BATCH_ROWS)):
        yield batch_of(taken, RESULT_ROW)


_PORTION = (
    "number int, kind int, path string, `partition` int, start long, end long, `limit` long, base long, is_packed boolean, "
    "begins_line boolean, inode long"
)


def portion_rows(spark: SparkSession, portions: Sequence[Portion]) -> DataFrame:
    """Return the portions as rows, each in a partition of its own."""
    listed = spark.createDataFrame([(number, *portion) for number, portion in enumerate(portions)], _PORTION)
    return listed.repartitionById(max(1, len(portions)), F.col("number")).drop("number")
