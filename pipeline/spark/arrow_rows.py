"""Rows as Arrow batches, which is how Spark and Python hand them to each other."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

Batches = Iterable[pa.RecordBatch]
Step = Callable[[Batches], Iterator[pa.RecordBatch]]
"""What a task does with its rows."""


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Of one row at least; each has a cell for each field."""
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cells_of(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """Row by row."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def spark_schema(schema: pa.Schema) -> str:
    """The same as Spark takes it."""
    names = {"int32": "int", "int64": "long", "bool": "boolean"}
    return ", ".join(f"`{field.name}` {names.get(str(field.type), str(field.type))}" for field in schema)
