"""Writes rows in tasks, and counts them in this process: the machines of a cluster may have separate file systems."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.errors import NotShared

_ROWS = "rows"


def write_rows(
    rows: DataFrame,
    url: str,
    mode: str = "errorifexists",
    layout: tuple[str, ...] = (),
    options: Mapping[str, str] = {},
    before: int = 0,
) -> int:
    """Write the rows as Parquet; return their number.

    `mode` and `options` are Spark's, `layout` names the columns that become directories. `before` is the number of rows already
    there to which these are appended.

    Raises:
        NotShared: Not all rows are visible to this process.
    """
    spark, observation = rows.sparkSession, Observation()
    observed = rows.observe(observation, F.count("*").alias(_ROWS))
    observed.write.mode(mode).options(**options).partitionBy(*layout).parquet(url)
    written = int(observation.get[_ROWS])
    found = count_rows(spark, url) - before
    if found != written:
        raise NotShared(url, written, found)
    return written


def count_rows(spark: SparkSession, url: str) -> int:
    """Return the sum of the row counts in all Parquet files below, read from their footers by this process; 0 without files."""
    java: Any = spark._jvm  # noqa: SLF001 - pyspark offers no other way to Hadoop.
    configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - as above.
    directory = java.org.apache.hadoop.fs.Path(url)
    files = directory.getFileSystem(configuration)
    if not files.exists(directory):
        return 0
    found, listed = 0, files.listFiles(directory, True)
    while listed.hasNext():
        status = listed.next()
        if status.getPath().getName().endswith(".parquet"):
            found += _rows_of(java, java.org.apache.parquet.hadoop.util.HadoopInputFile.fromStatus(status, configuration))
    return found


def _rows_of(java: Any, file: Any) -> int:
    reader = java.org.apache.parquet.hadoop.ParquetFileReader.open(file)
    try:
        return int(reader.getRecordCount())
    finally:
        reader.close()


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
