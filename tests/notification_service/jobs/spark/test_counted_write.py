"""The rows that tasks wrote, counted where the files are read."""

from pathlib import Path

import pytest
from harness.spark.written_elsewhere import write_elsewhere
from pyspark.sql import DataFrameWriter, SparkSession

from notification_service.jobs.errors import NotShared
from notification_service.jobs.spark.counted_write import count_rows, write_rows


def test_what_was_written_is_counted_beside_what_was_there(spark: SparkSession, tmp_path: Path) -> None:
    url = (tmp_path / "rows").as_uri()
    assert count_rows(spark, url) == 0
    rows = spark.range(10, numPartitions=2).selectExpr("id", "id % 3 AS third")
    assert write_rows(rows, url, layout=("third",)) == 10
    assert write_rows(rows.limit(3), url, "append", ("third",), before=10) == 3
    assert count_rows(spark, url) == 13
    assert write_rows(rows.where("id < 0"), url, "overwrite") == 0
    assert count_rows(spark, url) == 0


def test_what_a_task_wrote_on_a_machine_of_its_own_is_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DataFrameWriter, "parquet", write_elsewhere)
    with pytest.raises(NotShared) as missed:
        write_rows(spark.range(10, numPartitions=2), (tmp_path / "rows").as_uri())
    assert "rows: tasks have written 10 rows, of which 5 can be read here: a machine of the cluster has another" in str(
        missed.value
    )
