"""Reads sources with typed columns: Parquet files and database tables."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, StringType, TimestampNTZType, TimestampType, VarcharType

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.rows import FLAW, LINE, PLACE, SHOWN_CHARACTERS, TEXT, cleaned, column_names
from notification_service.jobs.spark.counted_write import write_rows
from notification_service.jobs.spark.errors import SPARK_ERRORS, cause_of
from notification_service.jobs.spark.job_settings import SourceSettings

_TEXTS = (StringType, VarcharType)
_DAYS = (DateType, TimestampType, TimestampNTZType)
_FETCHED_ROWS = "10000"
_DRIVERS = {"jdbc:postgresql:": "org.postgresql.Driver"}


def read_parquet(spark: SparkSession, source: SourceSettings, wanted: Sequence[str], required: Sequence[str]) -> DataFrame:
    """Return rows as described in `notification_service.jobs.lookups.rows`, without `source`.

    Raises:
        JobRefused: The file or a column is missing, or a column has another type.
    """
    try:
        table = spark.read.option("mergeSchema", "true").parquet(source.path)  # By default, one file's columns count for all.
    except SPARK_ERRORS as error:
        raise JobRefused(f"{source.place}: cannot be read as Parquet: {cause_of(error)}") from error
    return _shaped(table, source, wanted, required, F.col("_metadata.file_path"))


def read_jdbc(
    spark: SparkSession, source: SourceSettings, wanted: Sequence[str], required: Sequence[str], staged: Path
) -> DataFrame:
    """Return rows of a table, as `read_parquet` does. The table is copied into `staged`, because a second read might differ.

    Raises:
        JobRefused: The database does not answer, or a reason of `read_parquet`.
        NotShared: The tasks do not share the directory.
    """
    reader = spark.read.format("jdbc").option("url", source.url).option("dbtable", source.table)
    # The driver is named because one from spark.jars is not found by the URL.
    driver = source.driver or next((name for scheme, name in _DRIVERS.items() if source.url.startswith(scheme)), "")
    options = {"user": source.user, "password": source.password, "driver": driver, "fetchsize": _FETCHED_ROWS}
    for name, value in options.items():
        if value:
            reader = reader.option(name, value)
    url = staged.absolute().as_uri()
    try:
        write_rows(reader.load(), url)
    except SPARK_ERRORS as error:
        raise JobRefused(f"{source.place}: cannot be read: {cause_of(error)}") from error
    return _shaped(spark.read.parquet(url), source, wanted, required, F.lit(source.place))


def _shaped(table: DataFrame, source: SourceSettings, wanted: Sequence[str], required: Sequence[str], place: Column) -> DataFrame:
    names = column_names(wanted, required, source.columns, table.columns, source.place)
    types = {field.name: field.dataType for field in table.schema.fields}
    for name, its in names.items():
        _check_type(name, its, types[its], source)
    cells = {name: table[names[name]] if name in names else F.lit(None) for name in wanted}
    shown = F.to_json(F.struct(*[table[its] for its in names.values()]))
    return table.select(
        place.alias(PLACE),
        F.lit(None).cast("long").alias(LINE),
        F.left(shown, F.lit(SHOWN_CHARACTERS)).alias(TEXT),
        F.lit(None).cast("string").alias(FLAW),
        *[cleaned(cell.cast("string")).alias(name) for name, cell in cells.items()],
    )


def _check_type(name: str, its: str, found: DataType, source: SourceSettings) -> None:
    """Refuse columns that are no texts, or days for `valid_from`. A number has lost its leading zeros already."""
    if isinstance(found, _TEXTS) or (name == "valid_from" and isinstance(found, _DAYS)):
        return
    wanted = "a date or a string" if name == "valid_from" else "a string"
    raise JobRefused(f"{source.place}: the column {its!r} is {found.simpleString()}; it must be {wanted}")
