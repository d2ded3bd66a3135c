"""Merges small files of an archive into large ones; safe while others archive or read."""

from uuid import uuid4

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from notification_service.jobs.errors import ArchiveRefused, ArchiveUnavailable
from notification_service.jobs.spark.counted_write import write_rows
from notification_service.jobs.spark.session import SPARK_ERRORS, cause_of
from notification_service.jobs.spark.topics import SCHEMA
from notification_service.jobs.topic_archive.layout import WORK, Archive, path_of
from notification_service.jobs.topic_archive.manifest import NAME, RECORDS, ArchivedTopic, DirectoryManifest, encode
from notification_service.jobs.topic_archive.span import FULL_BYTES, MIN_BATCHES, Sized, Span, worthwhile
from notification_service.jobs.topic_archive.writer import LAYOUT, ORDER, WRITING, Tell
from resequencer.clock import Clock

COMPACTING = f"{WORK}/compacting"
GRACE_MS = 6 * 3_600_000
"""How long replaced directories are kept for readers that still use them."""

_FILE_BYTES = 192 << 20
_PLACED = StructType([*SCHEMA.fields, *(StructField(name, StringType()) for name in LAYOUT)])


class CompactionSettings(msgspec.Struct, frozen=True):
    """`full_bytes` and `min_batches` are those of `span.worthwhile`; a file gets about `file_bytes`."""

    full_bytes: int = FULL_BYTES
    min_batches: int = MIN_BATCHES
    grace_ms: int = GRACE_MS
    file_bytes: int = _FILE_BYTES


class Compacted(msgspec.Struct, frozen=True):
    """`made` are the new directories, `replaced` counts the directories they replace.

    `removed` are directories that an earlier compaction had replaced.
    """

    made: list[str]
    replaced: int
    removed: list[str]


class Compactor:
    """May be killed at any time: a new directory appears complete, and a later compaction removes the directories it replaces."""

    def __init__(
        self,
        spark: SparkSession,
        location: str,
        clock: Clock,
        settings: CompactionSettings = CompactionSettings(),  # noqa: B008
    ) -> None:
        self._spark = spark
        self._archive = Archive(spark, location)
        self._clock = clock
        self._settings = settings

    def compact(self, tell: Tell) -> Compacted:
        """Compact the archive; directories that were replaced long enough ago are removed first.

        Raises:
            ArchiveRefused: A batch is missing or damaged.
            NotShared: The tasks' machines do not share the archive's directory.
            ArchiveUnavailable: The file system failed.
        """
        for name in self._archive.place.names(COMPACTING):
            self._archive.place.remove(f"{COMPACTING}/{name}")
        removed = self._remove_replaced()
        manifests = {span: self._archive.manifest(span) for span in self._archive.spans()}
        sized = [Sized(span, manifest.bytes) for span, manifest in manifests.items()]
        groups = worthwhile(sized, self._settings.full_bytes, self._settings.min_batches)
        made = []
        for group in groups:
            made.append(self._make_one([manifests[each.span] for each in group]))
            tell(f"merged {len(group)} batches into {made[-1]}")
        return Compacted(made, sum(map(len, groups)), removed)

    def _remove_replaced(self) -> list[str]:
        spans, visible = self._archive.all_spans(), self._archive.spans()
        removed = []
        for keeper in visible:
            replaced = [each for each in spans if each != keeper and keeper.first <= each.first <= keeper.last]
            if replaced and self._archive.manifest(keeper).archived_at <= self._clock.now() - self._settings.grace_ms:
                removed += replaced
        for span in removed:
            self._archive.place.remove(path_of(span))
        for name in self._archive.place.found(f"{RECORDS}/*.removed"):
            self._archive.place.delete(name)
        return [each.name for each in removed]

    def _make_one(self, manifests: list[DirectoryManifest]) -> str:
        span = Span(manifests[0].first, manifests[-1].last)
        work = f"{COMPACTING}/{uuid4().hex}"
        try:
            return self._rewritten(manifests, span, f"{work}/{span.name}")
        except SPARK_ERRORS as error:
            raise ArchiveUnavailable(f"{self._archive.place}: could not write {span.name}: {cause_of(error)}") from error
        finally:
            self._archive.place.remove(work)

    def _rewritten(self, manifests: list[DirectoryManifest], span: Span, name: str) -> str:
        place = self._archive.place
        topics = _counted(manifests)
        if topics:
            self._write(manifests, place.at(name), sum(topics.values()))
        found = {topic: ArchivedTopic(count, place.size(f"{name}/topic={topic}")) for topic, count in topics.items()}
        settled = next((each for each in reversed(manifests) if each.positions is not None), None)
        positions, groups = (None, None) if settled is None else (settled.positions, settled.groups)
        newest = manifests[-1]
        at, starts, ends = self._clock.now(), newest.starts, newest.ends
        manifest = DirectoryManifest(span.first, span.last, at, found, starts, ends, positions, groups=groups)
        place.make(name)
        place.write(f"{name}/{NAME}", encode(manifest))
        place.publish(name, path_of(span))  # False if another process has made the same directory already.
        return span.name

    def _write(self, manifests: list[DirectoryManifest], target: str, expected: int) -> None:
        """Write the records of these batches. A wrong count means that a file is lost; it is refused, not covered up."""
        place = self._archive.place
        paths = [place.at(path_of(Span(each.first, each.last))) for each in manifests if each.records]
        files = max(1, -(-sum(each.bytes for each in manifests) // self._settings.file_bytes))
        rows = self._archive.read(_PLACED, paths)
        ordered = rows.repartitionByRange(files, *ORDER).sortWithinPartitions(*ORDER)
        found = write_rows(ordered, target, "overwrite", LAYOUT, WRITING)
        if found != expected:
            raise ArchiveRefused(
                f"{place}: batches {manifests[0].first} to {manifests[-1].last} hold {found:,} records, but {expected:,} were "
                "archived: restore them from a copy"
            )


def _counted(manifests: list[DirectoryManifest]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for manifest in manifests:
        for topic, archived in manifest.topics.items():
            counts[topic] = counts.get(topic, 0) + archived.records
    return counts
