"""Parquet files as sources: a column of a wrong type is refused before any row is read."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.reading import read_parquet
from notification_service.jobs.spark.job_settings import SourceSettings

WANTED, REQUIRED = ("account", "channel", "valid_from"), ("account",)


def write(path: Path, **columns: pa.Array) -> SourceSettings:
    pyarrow.parquet.write_table(pa.table(columns), path / "customers.parquet")
    return SourceSettings("parquet", str(path / "customers.parquet"))


def test_texts_and_days_are_read_and_what_is_blank_is_null(spark: SparkSession, tmp_path: Path) -> None:
    source = write(
        tmp_path, account=pa.array([" 1 ", "2"]), valid_from=pa.array([date(2026, 3, 28), None]), other=pa.array([1, 2])
    )
    found = read_parquet(spark, source, WANTED, REQUIRED)
    text = '{"account":" 1 ","valid_from":"2026-03-28"}'
    expected = [("1", None, "2026-03-28", text, None), ("2", None, None, '{"account":"2"}', None)]
    columns = ("account", "channel", "valid_from", "text", "flaw")
    assertDataFrameEqual(found.select(*columns), spark.createDataFrame(expected, ", ".join(f"{name} string" for name in columns)))
    assert {row.line for row in found.collect()} == {None}
    assert found.first().place.endswith("customers.parquet")


def test_a_column_that_only_one_of_the_files_has_is_read(spark: SparkSession, tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"account": ["1"]}), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pa.table({"account": ["2"], "channel": ["push"]}), tmp_path / "b.parquet")
    found = read_parquet(spark, SourceSettings("parquet", str(tmp_path)), WANTED, REQUIRED).orderBy("account").collect()
    assert [(row.account, row.channel) for row in found] == [("1", None), ("2", "push")]


def test_another_type_is_refused_with_the_column_and_the_type(spark: SparkSession, tmp_path: Path) -> None:
    source = write(tmp_path, account=pa.array([1, 2]))
    with pytest.raises(JobRefused, match="the column 'account' is bigint; it must be a string"):
        read_parquet(spark, source, WANTED, REQUIRED)


def test_what_is_no_parquet_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "customers.parquet").write_bytes(b"no parquet at all")
    with pytest.raises(JobRefused, match=r"customers\.parquet: cannot be read as Parquet: .*not a Parquet file"):
        read_parquet(spark, SourceSettings("parquet", str(tmp_path / "customers.parquet")), WANTED, REQUIRED)
