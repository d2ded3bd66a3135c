"""Makes the rows of Kafka's records, read from the topics or from the archive."""

from collections.abc import Iterable, Iterator
from functools import reduce
from typing import NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from notification_service.connectors.kafka.core.records import to_record
from notification_service.jobs.audit.rows import (
    DEAD_LETTER,
    NOTIFICATION,
    ORDER,
    OUTCOME,
    RECORD,
    UNREADABLE,
    Row,
    dead_letter_row,
    located,
    notification_row,
    order_rows,
    outcome_rows,
    record_row,
)
from notification_service.jobs.audit.rules import AuditRules, AuditSettings
from notification_service.jobs.audit.tables import ROW, row_batches
from notification_service.jobs.spark.counted_write import Batches, Step, spark_schema
from resequencer.gc_tuning import calm_collector
from resequencer.record import Headers, Origin, Partition, Record

LATER_PARTITION = 1 << 44
"""The distance between the places of successive output partitions. All output of a unit is in one partition."""

_COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


class Topics(NamedTuple):
    """The records of each topic: partition, offset, timestamp (ms), key, value and headers.

    The last two are None for a service without orders.
    """

    records: DataFrame
    notifications: DataFrame
    dead_letters: DataFrame
    orders: DataFrame | None = None
    order_outcomes: DataFrame | None = None


def record_rows(topics: Topics, settings: AuditSettings) -> DataFrame:
    """Return the rows of all topics. The task that reads an input record decodes it to find its unit."""
    kinds = (RECORD, NOTIFICATION, DEAD_LETTER, ORDER, OUTCOME)
    rows = [
        each.select(*_COLUMNS).mapInArrow(_reader(kind, settings), spark_schema(ROW))
        for each, kind in zip(topics, kinds, strict=True)
        if each is not None
    ]
    return reduce(DataFrame.unionAll, rows)


def _reader(kind: int, settings: AuditSettings) -> Step:
    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        calm_collector()
        rules = AuditRules(settings)
        yield from row_batches(_rows(kind, batches, rules))

    return read


def _rows(kind: int, batches: Batches, rules: AuditRules) -> Iterator[Row]:
    topic = rules.settings.topic
    for batch in batches:
        partitions, offsets, instants, keys, values = (batch.column(at).to_pylist() for at in range(5))
        headers = headers_of(batch.column(5))
        for partition, offset, at, key, value, named in zip(partitions, offsets, instants, keys, values, headers, strict=True):
            place = partition * LATER_PARTITION + offset
            origin = Origin(Partition(topic, partition), offset)
            rows: Iterable[Row]
            if kind == NOTIFICATION:
                rows = (notification_row(key, named, value, place),)
            elif kind == DEAD_LETTER:
                rows = (dead_letter_row(Record(origin, value, key, named), place, rules),)
            elif kind == ORDER:
                rows = order_rows(value or b"", partition, offset)
            elif kind == OUTCOME:
                rows = outcome_rows(named, value or b"", place)
            else:
                record = to_record(origin, key, value, named, rules.settings.max_value_bytes)
                rows = (record_row(_with_mended_names(record), at, rules),)
            for row in rows:
                yield located(row, f"partition {partition}, offset {offset} of the topic") if row.kind == UNREADABLE else row


def headers_of(column: pa.Array) -> Iterator[Headers]:
    """Yield the headers of each record. The whole column is converted at once, for there are more headers than records."""
    starts, lengths = column.offsets.to_pylist(), column.is_valid().to_pylist()
    each = column.values
    names, values = each.field("key").to_pylist(), each.field("value").to_pylist()
    for at, is_there in enumerate(lengths):
        start, end = starts[at], starts[at + 1]
        yield tuple([(names[place], values[place] or b"") for place in range(start, end)]) if is_there else ()


def _with_mended_names(record: Record) -> Record:
    """Mark a header name that is not UTF-8 as a defect, as the service does: Spark's client replaces its bytes by U+FFFD."""
    mended = next((name for name, _ in record.headers if "\ufffd" in name), None)
    if mended is None:
        return record
    return msgspec.structs.replace(record, defect=f"the name of a header is not UTF-8: {mended[:80]}")
