"""Writes one batch of the stream, and makes it visible in one step."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from notification_service.jobs.errors import ArchiveRefused
from notification_service.jobs.spark.counted_write import write_rows
from notification_service.jobs.spark.topics import as_records
from notification_service.jobs.topic_archive.layout import Archive, path_of
from notification_service.jobs.topic_archive.manifest import (
    NAME,
    RECORDS,
    ArchivedTopic,
    DirectoryManifest,
    Ends,
    GroupEnds,
    covers,
    encode,
    from_their_beginning,
    joined,
)
from notification_service.jobs.topic_archive.span import Span
from resequencer.clock import Clock

Tell = Callable[[str], None]
"""Called with a line of progress for people."""


class ArchiveSettings(msgspec.Struct, frozen=True):
    """`location` is a path or a URL of Hadoop's; `client` holds options of the Java client.

    `facts_group` is the consumer group that counts the facts, empty without aggregation.
    A batch takes at most about `batch_records`. A continuous archiver begins a batch every `every_ms`.
    """

    location: str
    topics: tuple[str, ...]
    client: Mapping[str, str]
    batch_records: int = 1_000_000
    every_ms: int = 60_000
    facts_group: str = ""


LAYOUT = ("topic", "day")
ORDER = (*LAYOUT, "partition", "offset")
WRITING = {"compression": "zstd", "partitionOverwriteMode": "static", "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""Spark must not write `_SUCCESS`: the archive uses this name for its manifest."""


class Known(NamedTuple):
    """Positions of the service's group, and the topics' ends, read after the positions. `groups` only with aggregation."""

    positions: dict[int, int]
    ends: Ends
    groups: GroupEnds | None = None


class BatchWriter:
    """Writes the batches of one run of the stream, under `work`. `look` returns the newest positions, None if unavailable."""

    def __init__(
        self, archive: Archive, work: str, topics: tuple[str, ...], clock: Clock, look: Callable[[], Known | None], tell: Tell
    ) -> None:
        self._archive = archive
        self._work = work
        self._topics = topics
        self._clock = clock
        self._look = look
        self._tell = tell
        self._newest = archive.find_newest()
        self._known = look()
        self._starts: dict[str, dict[int, int]] = {}
        self.is_busy = False
        self.failure: Exception | None = None
        self.records = 0

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        return {} if self._newest is None else self._newest.ends

    def begin(self, starts: Ends) -> None:
        """Set the start offsets of this run; partitions archived before keep their own."""
        self._starts = joined([starts, from_their_beginning(self.ends), {} if self._newest is None else self._newest.starts])

    def write(self, rows: DataFrame, number: int) -> None:
        """Write a batch; called by the stream. An exception ends the stream, and is kept: Spark passes on only its text."""
        self.is_busy = True
        try:
            self._write(rows, self._ends_of(number))
        except Exception as error:  # Any exception: Spark turns each into text.
            self.failure = error
            raise
        finally:
            self.is_busy = False

    def finish(self) -> None:
        """Publish a last batch if positions have moved without new records."""
        if self._has_moved(self.ends):
            self._publish({}, self.ends)

    def _write(self, rows: DataFrame, ends: Ends) -> None:
        name = f"{self._work}/{self._next().name}"
        counts = Observation()
        counted = [F.count_if(F.col("topic") == topic).alias(topic) for topic in self._topics]
        placed = as_records(rows).withColumn("day", F.date_format(F.timestamp_millis("timestamp"), "yyyy-MM-dd"))
        observed = placed.observe(counts, *counted).sortWithinPartitions(*ORDER)
        write_rows(observed, self._archive.place.at(name), "overwrite", LAYOUT, WRITING)
        found = {topic: count for topic, count in counts.get.items() if count}
        if found or self._has_moved(ends):
            self._publish(found, joined([self.ends, ends]))

    def _publish(self, counts: dict[str, int], ends: dict[str, dict[int, int]]) -> None:
        place, span = self._archive.place, self._next()
        name = f"{self._work}/{span.name}"
        topics = {topic: ArchivedTopic(count, place.size(f"{name}/topic={topic}")) for topic, count in counts.items()}
        positions, groups = self._settled() if self._is_known(ends) else (None, None)
        starts = joined([from_their_beginning(ends), self._starts])
        manifest = DirectoryManifest(span.first, span.last, self._clock.now(), topics, starts, ends, positions, groups=groups)
        place.make(name)
        place.write(f"{name}/{NAME}", encode(manifest))
        place.make(RECORDS)
        if not place.publish(name, path_of(span)):
            raise another_archives(self._archive)
        self._newest = manifest
        self.records += manifest.records
        self._tell(_manifest_text(manifest))
        if positions is not None:
            self._known = self._look()

    def _next(self) -> Span:
        number = 1 if self._newest is None else self._newest.last + 1
        return Span(number, number)

    def _settled(self) -> tuple[dict[int, int] | None, GroupEnds | None]:
        return (None, None) if self._known is None else (self._known.positions, self._known.groups)

    def _has_moved(self, ends: Ends) -> bool:
        newest = self._newest
        return self._is_known(ends) and newest is not None and self._settled() != (newest.positions, newest.groups)

    def _is_known(self, ends: Ends) -> bool:
        """Return whether these ends include all output that the newest known positions rest on."""
        return self._known is not None and covers(ends, self._known.ends)

    def _ends_of(self, number: int) -> dict[str, dict[int, int]]:
        """Return the ends that Spark planned for the batch; they lie behind transaction markers too."""
        name = f"{self._work}/checkpoint/offsets/{number}"
        planned = self._archive.place.read(name).splitlines()[-1]
        return msgspec.json.decode(planned, type=dict[str, dict[int, int]])


def another_archives(archive: Archive) -> ArchiveRefused:
    return ArchiveRefused(
        f"{archive.place}: another process archives into it too; stop one of them, or set another directory for it"
    )


def _manifest_text(manifest: DirectoryManifest) -> str:
    each = (f"{topic} {counted.records:,}" for topic, counted in sorted(manifest.topics.items()))
    return f"batch {manifest.last}: {', '.join(each) or 'nothing new but positions'}"
