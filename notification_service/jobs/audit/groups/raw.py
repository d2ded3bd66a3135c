"""Records of facts, reports and notifications as tasks read them, from files or from rows of Kafka's records."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from guardian.gc_tuning import calm_collector
from notification_service.connectors.line_format import Defect, decode_line
from notification_service.jobs.audit.groups.rows import RawRecord
from notification_service.jobs.audit.lines import Portion, plain_lines
from notification_service.jobs.audit.portion_rows import portion_rows
from notification_service.jobs.audit.record_rows import LATER_PARTITION, headers_of
from notification_service.jobs.spark.arrow_rows import Batches, Step, batch_of, spark_schema

_BATCH_ROWS = 2_000
_LONGEST_LINE = 256 * 1024 * 1024
_COLUMNS = ("partition", "offset", "key", "value", "headers")


Decode = Callable[[RawRecord], Iterable[tuple[Any, ...]]]
"""Makes rows of a record."""


def rows_of_lines(spark: SparkSession, portions: list[Portion], decode: Decode, schema: pa.Schema) -> DataFrame:
    """Return the rows of the lines of these files. The `partition` of a portion is that of its lines."""
    return portion_rows(spark, portions).mapInArrow(_step(decode, schema, _lines), spark_schema(schema))


def rows_of_records(records: DataFrame, name: str, decode: Decode, schema: pa.Schema) -> DataFrame:
    """Return the rows of a topic's records. `name` is how people know them, such as `facts`."""

    def read(batches: Batches) -> Iterator[RawRecord]:
        return _records(batches, name)

    return records.select(*_COLUMNS).mapInArrow(_step(decode, schema, read), spark_schema(schema))


def _step(decode: Decode, schema: pa.Schema, read: Callable[[Batches], Iterator[RawRecord]]) -> Step:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        calm_collector()
        rows = (row for raw in read(batches) for row in decode(raw))
        while taken := list(islice(rows, _BATCH_ROWS)):
            yield batch_of(taken, schema)

    return run


def _lines(batches: Batches) -> Iterator[RawRecord]:
    for batch in batches:
        for each in batch.to_pylist():
            portion = Portion(**each)
            for line in plain_lines(portion, _LONGEST_LINE):
                place, read = portion.base + line.start, decode_line(line.content)
                where = f"{portion.path.rpartition('/')[2]}, byte {line.start}"
                if isinstance(read, Defect):
                    yield RawRecord(portion.partition, place, place, where, None, (), b"", read.problem)
                else:
                    yield RawRecord(portion.partition, place, place, where, read.key, read.headers, read.value)


def _records(batches: Batches, name: str) -> Iterator[RawRecord]:
    for batch in batches:
        partitions, offsets, keys, values = (batch.column(at).to_pylist() for at in range(4))
        for partition, offset, key, value, headers in zip(
            partitions, offsets, keys, values, headers_of(batch.column(4)), strict=True
        ):
            where = f"partition {partition}, offset {offset} of the {name}"
            yield RawRecord(partition, offset, partition * LATER_PARTITION + offset, where, key, headers, value or b"")
