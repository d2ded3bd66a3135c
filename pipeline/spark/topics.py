"""Topics as rows: read by Spark's own connector, whose jars the session must have been started with."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from domain.record import Partition

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", LongType()),
        StructField("timestamp_type", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)
"""A record of a topic. `timestamp` counts milliseconds; its type is 0 where whoever sent it said it, 1 where the broker did.
`headers` is never null."""

LATEST_MS = (2**63 - 1) // 1_000
"""Spark holds instants as microseconds; its connector ends at a record with a later one."""


def too_late(found: Mapping[Partition, int]) -> str | None:
    """What is to be said of records with later timestamps, by partition the offset of the first; None if there are none."""
    if not found:
        return None
    partition, offset = min(found.items())
    return (
        f"{partition}@{offset}: its timestamp is later than {LATEST_MS} ms, which Spark cannot hold (did its sender give "
        "nanoseconds?), so nothing behind it can be read. Once the service has read past it, take it away with "
        f"kafka-delete-records, up to offset {offset + 1}, and begin a new archive with what is there; let the topic refuse such "
        "records (message.timestamp.after.max.ms)"
    )


def read_topic(spark: SparkSession, client: Mapping[str, str], topic: str, ends: Mapping[int, int] | None = None) -> DataFrame:
    """All that there is of a topic, up to these ends of its partitions (of all of them), or up to where what is decided ends now.

    `client` is what `java_client.java_options` gives. What lies in aborted transactions is no record.
    """
    until = "latest" if ends is None else json.dumps({topic: {str(number): end for number, end in ends.items()}})
    reader = spark.read.format("kafka").options(**source_options(client)).option("subscribe", topic)
    return as_records(reader.option("startingOffsets", "earliest").option("endingOffsets", until).load()).select(
        *SCHEMA.fieldNames()
    )


def source_options(client: Mapping[str, str]) -> dict[str, str]:
    """For Spark's reader: the client's options and what is always so here."""
    always = {"includeHeaders": "true", "failOnDataLoss": "true", "kafka.isolation.level": "read_committed"}
    return {f"kafka.{name}": value for name, value in client.items()} | always


def as_records(rows: DataFrame) -> DataFrame:
    """The connector's rows in the columns of `SCHEMA`, with the topic before them."""
    return rows.select(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        F.col("timestampType").alias("timestamp_type"),
        "key",
        "value",
        F.coalesce("headers", F.array().cast(SCHEMA["headers"].dataType)).alias("headers"),
    )
