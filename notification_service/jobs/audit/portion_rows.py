"""Portions of files as rows of Spark, each for a task of its own."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.audit.lines import Portion

_PORTION = (
    "number int, kind int, path string, `partition` int, start long, end long, `limit` long, base long, is_packed boolean, "
    "begins_line boolean, inode long"
)


def portion_rows(spark: SparkSession, portions: Sequence[Portion]) -> DataFrame:
    """Return the portions as rows, each in a partition of its own."""
    listed = spark.createDataFrame([(number, *portion) for number, portion in enumerate(portions)], _PORTION)
    return listed.repartitionById(max(1, len(portions)), F.col("number")).drop("number")
