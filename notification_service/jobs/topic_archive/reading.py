"""Reads an archive; safe while others write or compact it."""

from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.spark.topics import SCHEMA
from notification_service.jobs.topic_archive.layout import Archive, path_of
from notification_service.jobs.topic_archive.manifest import DirectoryManifest, GroupEnds
from notification_service.jobs.topic_archive.span import Span


class ArchiveSnapshot:
    """The archive as it was when this object was made, whatever is archived or compacted meanwhile.

    `directory` is a path or a URL of Hadoop's. A compaction removes only directories that were replaced hours before, so a reader
    has that long.

    Raises, also from its methods:
        ArchiveRefused: A batch, or a file of one, is missing or damaged.
        ArchiveUnavailable: The file system failed.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._archive = Archive(spark, directory)
        self._spans = self._archive.spans()
        self._manifests: dict[Span, DirectoryManifest] = {}

    @property
    def starts(self) -> dict[str, dict[int, int]]:
        """The offset from which each topic is archived, by partition: 0 if from the beginning. Empty for an empty archive."""
        return {} if self._newest is None else self._newest.starts

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        """The offset before which each topic is archived, by partition. Empty for an empty archive."""
        return {} if self._newest is None else self._newest.ends

    @property
    def positions(self) -> dict[int, int] | None:
        """The newest known positions of the service's group, by input partition; None if none are known.

        All output caused by records before them is archived.
        """
        return None if self._settled is None else self._settled.positions

    @property
    def groups(self) -> GroupEnds | None:
        """How far facts and group reports are archived, as of the same moment; None for an archive without them."""
        return None if self._settled is None else self._settled.groups

    @cached_property
    def _settled(self) -> DirectoryManifest | None:
        """The manifest of the newest directory with positions."""
        found = (self._manifest(span) for span in reversed(self._spans))
        return next((each for each in found if each.positions is not None), None)

    def read(self, topic: str) -> DataFrame:
        """Return the topic's records in the columns of `topics.SCHEMA`, each once, in no order.

        Checks first that no file is missing or has another size.
        """
        for span in self._spans:
            self._check(span, topic)
        directories = self._archive.directories(topic, self._spans)
        if not directories:
            return self._spark.createDataFrame([], SCHEMA)
        return self._archive.read(SCHEMA, directories)

    def _check(self, span: Span, topic: str) -> None:
        archived = self._manifest(span).topics.get(topic)
        expected, name = (0 if archived is None else archived.bytes), f"{path_of(span)}/topic={topic}"
        found = self._archive.place.size(name)
        if found != expected:
            raise ArchiveRefused(
                f"{self._archive.place}: the files of {name} have {found:,} bytes, but {expected:,} were archived: restore them "
                "from a copy"
            )

    @cached_property
    def _newest(self) -> DirectoryManifest | None:
        return self._manifest(self._spans[-1]) if self._spans else None

    def _manifest(self, span: Span) -> DirectoryManifest:
        if span not in self._manifests:
            self._manifests[span] = self._archive.manifest(span)
        return self._manifests[span]
