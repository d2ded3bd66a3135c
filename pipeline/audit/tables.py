"""The rows of an audit as Arrow batches, which is how Spark and Python hand them to each other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import pyarrow as pa

from pipeline.audit.judging import Told
from pipeline.audit.rows import Row

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
TOLD = pa.schema(
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
_BATCH_ROWS = 2_000
_BATCH_BYTES = 16 * 1024 * 1024

Batches = Iterable[pa.RecordBatch]
Step = Callable[[Batches], Iterator[pa.RecordBatch]]
"""What a task does with its rows."""


def rows_of(batches: Batches) -> Iterator[Row]:
    for batch in batches:
        yield from map(Row._make, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def row_batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """Few rows at once, and fewer where they are large."""
    taken, size = list[Row](), 0
    for row in rows:
        taken.append(row)
        size += len(row.payload)
        if size > _BATCH_BYTES or len(taken) == _BATCH_ROWS:
            yield _batch(taken, ROW)
            taken, size = [], 0
    if taken:
        yield _batch(taken, ROW)


def told_batches(told: Iterable[Told]) -> Iterator[pa.RecordBatch]:
    left = iter(told)
    while taken := list(islice(left, _BATCH_ROWS)):
        yield _batch(taken, TOLD)


def spark_schema(schema: pa.Schema) -> str:
    names = {"int32": "int", "int64": "long", "bool": "boolean"}
    return ", ".join(f"`{field.name}` {names.get(str(field.type), str(field.type))}" for field in schema)


def _batch(rows: Sequence[NamedTuple], schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
