"""Reads topics as rows with Spark's Kafka connector; the session must have been started with its jars."""

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from resequencer.record import Origin, Partition

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
"""A record of a topic. `timestamp` is in ms; its type is 0 if the producer set it, 1 if the broker did. `headers` is never
null."""

LATEST_MS = (2**63 - 1) // 1_000
"""The latest timestamp that Spark can hold, for it counts microseconds; its connector fails at a later one."""


def too_late(found: Mapping[Partition, int]) -> str | None:
    """Return the problem text for records with later timestamps; None if there are none. `found` has the first by partition."""
    if not found:
        return None
    partition, offset = min(found.items())
    return (
        f"{Origin(partition, offset)}: its timestamp is later than {LATEST_MS} ms, which Spark cannot hold (did its producer "
        "write nanoseconds?), so no record behind it can be read. Once the service has read past it, delete it with "
        f"kafka-delete-records, up to offset {offset + 1}, and start a new archive with the remaining records; let the topic "
        "refuse such records (message.timestamp.after.max.ms)"
    )


def read_topic(spark: SparkSession, client: Mapping[str, str], topic: str, ends: Mapping[int, int] | None = None) -> DataFrame:
    """Read a topic from its beginning up to these ends of all its partitions, or up to the current ends of the decided parts.

    `client` comes from `java_client.java_options`. Records of aborted transactions are left out.
    """
    until = "latest" if ends is None else json.dumps({topic: {str(number): end for number, end in ends.items()}})
    reader = spark.read.format("kafka").options(**source_options(client)).option("subscribe", topic)
    return as_records(reader.option("startingOffsets", "earliest").option("endingOffsets", until).load()).select(
        *SCHEMA.fieldNames()
    )


def source_options(client: Mapping[str, str]) -> dict[str, str]:
    """Return the options of Spark's reader: the client's, and the fixed ones."""
    always = {"includeHeaders": "true", "failOnDataLoss": "true", "kafka.isolation.level": "read_committed"}
    return {f"kafka.{name}": value for name, value in client.items()} | always


def as_records(rows: DataFrame) -> DataFrame:
    """Return the connector's rows in the columns of `SCHEMA`, with `topic` before them."""
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
