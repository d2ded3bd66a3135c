"""Tables in shards: tasks write them, and the service's own code reads them."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.errors import NotShared
from notification_service.jobs.lookups.shards import MAX_SHARDS, ROWS_PER_SHARD, shard_count, write_table
from notification_service.lookups.release import LookupTable


@pytest.mark.parametrize("shards", [1, 5])
def test_every_row_is_found_again_whatever_its_shard(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    (tmp_path / "00000-left.mdb").write_bytes(b"what a task that died has written")
    rows = spark.range(3_000).select(
        F.concat(F.lit("Schlüssel-"), F.col("id")).alias("key"), F.concat("id", F.lit("€")).alias("value")
    )
    table = write_table(rows, tmp_path, shards)
    assert (len(table.shards), table.rows) == (shards, 3_000)
    assert {each.file for each in table.shards} == {file.name for file in tmp_path.iterdir()}
    assert all(each.bytes == (tmp_path / each.file).stat().st_size for each in table.shards)
    found = LookupTable([tmp_path / each.file for each in table.shards])
    assert all(found.find(f"Schlüssel-{number}".encode()) == f"{number}€".encode() for number in range(3_000))
    assert found.find(b"other") is None
    found.close()


def test_a_table_without_rows_has_its_shards_too(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([], "key string, value string")
    table = write_table(rows, tmp_path, 2)
    assert (len(table.shards), table.rows) == (2, 0)
    found = LookupTable([tmp_path / each.file for each in table.shards])
    assert found.find(b"other") is None
    found.close()


def test_a_shard_that_a_task_wrote_on_a_machine_of_its_own_is_missed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.range(30).select(F.concat(F.lit("k"), F.col("id")).alias("key"), F.col("id").cast("string").alias("value"))
    frames = type(rows)
    collect = frames.collect

    def collect_elsewhere(frame: DataFrame) -> list[Row]:
        collected = collect(frame)
        (tmp_path / collected[0].file).unlink()
        return collected

    monkeypatch.setattr(frames, "collect", collect_elsewhere)
    with pytest.raises(
        NotShared, match=r"tasks have written 30 rows, of which [12]\d can be read here: a machine of the cluster"
    ):
        write_table(rows, tmp_path, 2)


def test_shards_stay_small_enough_to_be_sorted_by_a_task() -> None:
    assert [shard_count(rows) for rows in (0, 1, ROWS_PER_SHARD, ROWS_PER_SHARD + 1, 10**12)] == [1, 1, 1, 2, MAX_SHARDS]
