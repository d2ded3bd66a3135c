"""Makes the rows of the file transport: files are cut into portions, and a task reads each."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.files.settings import FileSettings
from guardian.gc_tuning import calm_collector
from pipeline.audit.lines import FileScope, Portion, find_scope, read_portion
from pipeline.audit.rules import AuditRules, AuditSettings
from pipeline.audit.scope import Scope
from pipeline.audit.tables import ROW, row_batches
from pipeline.spark.arrow_rows import Batches, Step, spark_schema

_PORTION = (
    "number int, kind int, path string, `partition` int, start long, end long, `limit` long, base long, is_packed boolean, "
    "begins_line boolean, inode long"
)


def files_scope(spark: SparkSession, settings: FileSettings, archive: Path, orders: Path | None = None) -> Scope:
    """Return the scope of the file transport. `orders` is the directory of the orders, None for a service without orders.

    Raises:
        AuditRefused: A part of the data is gone, so that its content cannot be checked.
    """
    found = find_scope(settings, archive, orders)
    return Scope(found.settled, found.size, lambda judged_by: file_rows(spark, found, judged_by))


def file_rows(spark: SparkSession, scope: FileScope, settings: AuditSettings) -> DataFrame:
    listed = spark.createDataFrame([(number, *portion) for number, portion in enumerate(scope.portions)], _PORTION)
    spread = listed.repartitionById(max(1, len(scope.portions)), F.col("number")).drop("number")
    return spread.mapInArrow(_reader(settings), spark_schema(ROW))


def _reader(settings: AuditSettings) -> Step:
    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        calm_collector()
        rules = AuditRules(settings)
        for batch in batches:
            for each in batch.to_pylist():
                yield from row_batches(read_portion(Portion(**each), rules))

    return read
