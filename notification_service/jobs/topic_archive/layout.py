"""The directory layout of an archive."""

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from notification_service.jobs.topic_archive.manifest import NAME, DirectoryManifest, decode
from notification_service.jobs.topic_archive.place import Place
from notification_service.jobs.topic_archive.span import Span, find_span, visible

RECORDS = "batches"
WORK = "work"


class Archive:
    """`<location>/batches/batch=<first>-<last>/topic=<topic>/day=<UTC>/*.parquet`; unfinished directories are in `work`.

    A directory of `batches` appears complete, and never changes.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark = spark
        self.place = Place(spark, location)

    def all_spans(self) -> list[Span]:
        """Return the spans of all complete directories, also of replaced ones."""
        names = self.place.found(f"{RECORDS}/batch=*/{NAME}")
        spans = (find_span(name.split("/")[1]) for name in names)
        return [span for span in spans if span is not None]

    def spans(self) -> list[Span]:
        """Return the spans that count, in order.

        Raises:
            ArchiveRefused: A batch is missing.
        """
        return visible(self.all_spans())

    def find_newest(self) -> DirectoryManifest | None:
        """Return the manifest of the newest batch; None if nothing was archived."""
        spans = self.spans()
        return self.manifest(spans[-1]) if spans else None

    def manifest(self, span: Span) -> DirectoryManifest:
        name = f"{path_of(span)}/{NAME}"
        return decode(self.place.read(name), self.place.at(name))

    def read(self, schema: StructType, directories: Sequence[str]) -> DataFrame:
        """Return the rows of these directories. The schema may also name columns that come from directory names."""
        based = self._spark.read.schema(schema).option("basePath", self.place.at(RECORDS))
        return based.parquet(*directories).select(*schema.fieldNames())

    def directories(self, topic: str, spans: Sequence[Span]) -> list[str]:
        """Return the directories that hold the topic's records of these spans, as paths for Spark."""
        with_records = {each.split("/")[1] for each in self.place.found(f"{RECORDS}/batch=*/topic={topic}")}
        return [self.place.at(path_of(span), f"topic={topic}") for span in spans if span.name in with_records]


def path_of(span: Span) -> str:
    return f"{RECORDS}/{span.name}"
