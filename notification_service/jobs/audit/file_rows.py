"""Makes the rows of the file transport: files are cut into portions, and a task reads each."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from notification_service.connectors.files.settings import FileSettings
from notification_service.jobs.audit.groups.sources import GroupDirectories, groups_of_files
from notification_service.jobs.audit.lines import FileScope, Portion, find_scope, read_portion
from notification_service.jobs.audit.portion_rows import portion_rows
from notification_service.jobs.audit.rows import NOTIFICATION
from notification_service.jobs.audit.rules import AuditRules, AuditSettings
from notification_service.jobs.audit.scope import Scope
from notification_service.jobs.audit.tables import ROW, row_batches
from notification_service.jobs.spark.counted_write import Batches, Step, spark_schema
from resequencer.gc_tuning import calm_collector


def files_scope(
    spark: SparkSession,
    settings: FileSettings,
    archive: Path,
    orders: Path | None = None,
    groups: GroupDirectories | None = None,
) -> Scope:
    """Return the scope of the file transport. `orders` is the directory of the orders, None for a service without orders.

    `groups` are the directories of aggregation, None without it.

    Raises:
        AuditRefused: A part of the data is gone, so that its content cannot be checked.
    """
    found = find_scope(settings, archive, orders)
    notifications = [each for each in found.portions if each.kind == NOTIFICATION]
    of_groups = None if groups is None else groups_of_files(spark, groups, notifications)
    return Scope(found.settled, found.size, lambda judged_by: file_rows(spark, found, judged_by), of_groups)


def file_rows(spark: SparkSession, scope: FileScope, settings: AuditSettings) -> DataFrame:
    return portion_rows(spark, scope.portions).mapInArrow(_reader(settings), spark_schema(ROW))


def _reader(settings: AuditSettings) -> Step:
    def read(batches: Batches) -> Iterator[pa.RecordBatch]:
        calm_collector()
        rules = AuditRules(settings)
        for batch in batches:
            for each in batch.to_pylist():
                yield from row_batches(read_portion(Portion(**each), rules))

    return read
