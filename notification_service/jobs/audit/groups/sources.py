"""Where the audit of groups reads: the files of facts and reports, or their topics."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.positions import PositionsFile
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.line_format import Defect, decode_line
from notification_service.jobs.audit.groups.job import GroupRecords
from notification_service.jobs.audit.groups.report_rows import report_rows
from notification_service.jobs.audit.groups.rows import FactRow, NotifiedRow, RawRecord, ReportRow, fact_rows, notified_rows
from notification_service.jobs.audit.lines import Portion, cut_up, output_portions, partition_files, plain_lines
from notification_service.jobs.audit.record_rows import LATER_PARTITION, headers_of
from notification_service.jobs.audit.rows import RECORD
from notification_service.jobs.audit.tables import portion_rows
from notification_service.jobs.spark.counted_write import Batches, Step, batch_of, spark_schema
from resequencer.gc_tuning import calm_collector

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
                    yield RawRecord(portion.partition, place, place, where, read.key, read.headers, read.content)


def _records(batches: Batches, name: str) -> Iterator[RawRecord]:
    for batch in batches:
        partitions, offsets, keys, values = (batch.column(at).to_pylist() for at in range(4))
        for partition, offset, key, value, headers in zip(
            partitions, offsets, keys, values, headers_of(batch.column(4)), strict=True
        ):
            where = f"partition {partition}, offset {offset} of the {name}"
            yield RawRecord(partition, offset, partition * LATER_PARTITION + offset, where, key, headers, value or b"")


_KINDS = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}


def _schema(row: type) -> pa.Schema:
    """Return the columns of a row's fields. The kind of a field that may be None is the other one."""
    kinds = ((name, getattr(kind, "__args__", (kind,))[0]) for name, kind in row.__annotations__.items())
    return pa.schema([(name, _KINDS[kind]) for name, kind in kinds])


FACT, REPORT, NOTIFIED = map(_schema, (FactRow, ReportRow, NotifiedRow))


class GroupDirectories(NamedTuple):
    """`facts` holds the facts and the commands of operators; `reports` the reports and how far the facts are counted."""

    facts: Path
    reports: Path


def groups_of_files(spark: SparkSession, directories: GroupDirectories, notifications: Sequence[Portion]) -> GroupRecords:
    """Return the records as they are now. `notifications` are portions that were found before.

    How far facts are counted is read first, then reports, then facts: so no report lacks the facts that it stands on.
    """
    positions = PositionsFile(directories.reports / "positions.json", SystemFiles()).read()
    read_to = {} if positions is None else {each.number: at.offset for each, at in positions.partitions.items()}
    reports = list(output_portions(RECORD, directories.reports / "completions.jsonl"))
    files = partition_files(directories.facts)
    facts = [portion for path, number in files for portion in cut_up(RECORD, path, number, 0, 0)]
    return GroupRecords(
        rows_of_lines(spark, facts, fact_rows, FACT),
        rows_of_lines(spark, reports, report_rows, REPORT),
        rows_of_lines(spark, list(notifications), notified_rows, NOTIFIED),
        read_to,
    )


def groups_of_topics(topics: KafkaTopics, read: Callable[[str], DataFrame], read_to: Mapping[int, int]) -> GroupRecords:
    """Return the records of the topics of facts, of reports and of notifications."""
    return GroupRecords(
        rows_of_records(read(topics.facts), "facts", fact_rows, FACT),
        rows_of_records(read(topics.reports), "group reports", report_rows, REPORT),
        rows_of_records(read(topics.notifications), "notifications", notified_rows, NOTIFIED),
        read_to,
    )
