"""What is read of an archive, by whoever likes, also while it is written and compacted."""

from pyspark.sql import DataFrame, SparkSession

from pipeline.archive.archive import Archive
from pipeline.topics import SCHEMA


def read_archived(spark: SparkSession, directory: str, topic: str) -> DataFrame:
    """The topic's records in the columns of `topics.SCHEMA`, each once, in no order: all that are archived as of now.

    `directory` is a path or a URL of Hadoop's. What is removed by a compaction was replaced hours before: a reader has that long.

    Raises:
        ArchiveRefused: A batch is missing.
        ArchiveUnavailable: The file system failed.
    """
    archive = Archive(spark, directory)
    directories = archive.directories(topic)
    if not directories:
        return spark.createDataFrame([], SCHEMA)
    return archive.read(SCHEMA, directories)


def archived_topics(spark: SparkSession, directory: str) -> dict[str, dict[int, int]]:
    """Up to where each topic is archived, by partition; nothing of an archive that is empty."""
    newest = Archive(spark, directory).find_newest()
    return {} if newest is None else newest.ends


def archived_starts(spark: SparkSession, directory: str) -> dict[str, dict[int, int]]:
    """From where on each topic is archived, by partition: 0 if it is from the beginning."""
    newest = Archive(spark, directory).find_newest()
    return {} if newest is None else newest.starts


def find_positions(spark: SparkSession, directory: str) -> dict[int, int] | None:
    """Positions of the service's group by input partition, the newest that are known: all that was sent because of records before
    them is archived. None if there are no such positions.
    """
    archive = Archive(spark, directory)
    for span in reversed(archive.spans()):
        positions = archive.manifest(span).positions
        if positions is not None:
            return positions
    return None
