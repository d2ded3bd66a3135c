"""Tables of a real PostgreSQL as sources."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.testing import assertDataFrameEqual

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.reading import read_jdbc
from notification_service.jobs.spark.job_settings import SourceSettings
from servers.postgresql import DATABASE, USER, PostgresqlServer
from servers.server import LOOPBACK

AS_USER = {"user": USER, "driver": "org.postgresql.Driver"}
WANTED, REQUIRED = ("account", "channel", "valid_from"), ("account",)


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    return f"jdbc:postgresql://{LOOPBACK}:{postgresql.ports['postgresql']}/{DATABASE}"


@pytest.fixture
def table(fresh_name: Callable[[str], str]) -> str:
    return fresh_name("table").replace("-", "_")


def source(url: str, table: str) -> SourceSettings:
    return SourceSettings("jdbc", url=url, table=table, user=USER)


def test_a_table_is_read_once_and_a_query_too(spark: SparkSession, url: str, table: str, tmp_path: Path) -> None:
    rows = spark.createDataFrame(
        [("1", "email", "2026-03-28"), ("2", " ", None), ("3", None, None)], "account string, kanal string, since string"
    )
    typed = rows.select("account", "kanal", F.to_date("since").alias("valid_from"), F.lit(7).alias("other"))
    typed.write.jdbc(url, table, properties=AS_USER)
    described = SourceSettings("jdbc", url=url, table=table, user=USER, columns={"channel": "kanal"})
    found = read_jdbc(spark, described, WANTED, REQUIRED, tmp_path / "staged")
    typed.write.mode("append").jdbc(url, table, properties=AS_USER)
    expected = [("1", "email", "2026-03-28"), ("2", None, None), ("3", None, None)]
    assertDataFrameEqual(
        found.select(*WANTED), spark.createDataFrame(expected, "account string, channel string, valid_from string")
    )
    assert found.first().place == f"{url} {table}"
    query = source(url, f"(SELECT account FROM {table} WHERE account = '2') AS chosen")
    assert read_jdbc(spark, query, WANTED, REQUIRED, tmp_path / "query").count() == 2


def test_what_is_not_there_or_of_another_type_is_refused_by_name(
    spark: SparkSession, url: str, table: str, tmp_path: Path
) -> None:
    spark.range(3).select(F.col("id").alias("account")).write.jdbc(url, table, properties=AS_USER)
    for described, text in (
        (source(url, "nowhere"), 'relation "nowhere" does not exist'),
        (source(url, table), "the column 'account' is bigint; it must be a string"),
        (SourceSettings("jdbc", url="jdbc:postgresql://127.0.0.1:1/x?password=secret", table="t"), "connect to the database"),
    ):
        with pytest.raises(JobRefused) as refused:
            read_jdbc(spark, described, WANTED, REQUIRED, tmp_path / described.table)
        assert text in str(refused.value)
        assert "secret" not in str(refused.value)
