"""Converts rows to Arrow batches and back: the form in which Spark and Python exchange them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

Batches = Iterable[pa.RecordBatch]
Step = Callable[[Batches], Iterator[pa.RecordBatch]]
"""A task's processing of its rows."""


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of at least one row; each row has a cell for each field."""
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def cells_of(batches: Batches) -> Iterator[tuple[Any, ...]]:
    """Yield the cells of each row."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def spark_schema(schema: pa.Schema) -> str:
    """Return the schema in Spark's syntax."""
    names = {"int32": "int", "int64": "long", "bool": "boolean"}
    return ", ".join(f"`{field.name}` {names.get(str(field.type), str(field.type))}" for field in schema)
