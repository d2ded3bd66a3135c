"""Streams the topics into the archive."""

import json
from collections.abc import Callable, Mapping
from time import monotonic
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_ends import TopicEnds, TopicEndsReader
from notification_service.jobs.errors import ArchiveRefused, ArchiveUnavailable, NotShared
from notification_service.jobs.spark.session import SPARK_ERRORS, cause_of
from notification_service.jobs.spark.topics import LATEST_MS, source_options, too_late
from notification_service.jobs.topic_archive.layout import WORK, Archive
from notification_service.jobs.topic_archive.manifest import GroupEnds, beginning
from notification_service.jobs.topic_archive.writer import ArchiveSettings, BatchWriter, Known, Tell, another_archives
from resequencer.clock import Clock
from resequencer.record import Partition

ARCHIVING = f"{WORK}/archiving"
_OWNER = "ours"
"""A directory that marks the run. A later process removes it with all else, by which this run notices that it was replaced."""

_LOOK_SECONDS = 0.2
_DECIDED_SECONDS = 30


class Archiver:
    """One process's archiving. `kafka` holds the settings of the service's client; `pause` waits for some milliseconds.

    A run starts where the newest batch ends. So it needs nothing of an earlier process, and the stream's checkpoint serves one
    run only.
    """

    def __init__(
        self, spark: SparkSession, settings: ArchiveSettings, kafka: KafkaSettings, clock: Clock, pause: Callable[[int], None]
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._archive = Archive(spark, settings.location)
        self._reader = TopicEndsReader(kafka, settings.facts_group)
        self._reports = kafka.topics.reports
        self._clock = clock
        self._pause = pause
        self.records = 0

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        """The offsets up to which the topics are archived."""
        newest = self._archive.find_newest()
        return {} if newest is None else newest.ends

    def run(self, tell: Tell, is_stopping: Callable[[], bool], *, is_continuous: bool) -> None:
        """Archive all records that are there now; with `is_continuous`, continue until `is_stopping`, asked between batches.

        Raises:
            ArchiveUnavailable, TransportUnavailable: Brokers or file system do not answer; another run continues from here.
            ArchiveRefused, TransportRefused, NotShared: An operator has to act.
        """
        topic_ends = self._reader.look() if is_continuous else self._topic_ends(tell)
        self._clear()
        work = f"{ARCHIVING}/{uuid4().hex}"
        known = iter([_known(topic_ends, self._reports)])
        writer = BatchWriter(
            self._archive, work, self._settings.topics, self._clock, lambda: next(known, None) or self._look(), tell
        )
        starting = beginning(writer.ends, topic_ends, str(self._archive.place))
        query = None
        try:
            self._archive.place.make(f"{work}/{_OWNER}")
            writer.begin(starting)
            query = self._begin(writer, work, json.dumps(starting), is_continuous=is_continuous)
            _follow(query, writer, is_stopping)
            writer.finish()
        except SPARK_ERRORS as error:
            raise self._failure(writer.failure or error, work) from error
        finally:
            self.records += writer.records
            if query is not None:
                query.stop()
            self._archive.place.remove(work)

    def close(self) -> None:
        self._reader.close()

    def _begin(self, writer: BatchWriter, work: str, starting: str, *, is_continuous: bool) -> StreamingQuery:
        settings = self._settings
        reader = self._spark.readStream.format("kafka").options(**source_options(settings.client))
        reader = reader.option("subscribe", ",".join(settings.topics)).option("startingOffsets", starting)
        stream = reader.option("maxOffsetsPerTrigger", settings.batch_records).load().writeStream.foreachBatch(writer.write)
        trigger = {"processingTime": f"{settings.every_ms} milliseconds"} if is_continuous else {"availableNow": True}
        checkpoint = self._archive.place.at(work, "checkpoint")
        return stream.option("checkpointLocation", checkpoint).trigger(**trigger).start()

    def _topic_ends(self, tell: Tell) -> TopicEnds:
        """Return the ends once all records written before the call are decided; after a time-out, the ends as they are."""
        topic_ends, until = self._reader.look(), monotonic() + _DECIDED_SECONDS
        while not topic_ends.is_decided:
            if monotonic() > until:
                tell("a transaction stays open; the records behind it are archived once it has ended")
                break
            self._pause(round(_LOOK_SECONDS * 1_000))
            topic_ends = self._reader.again(topic_ends)
        return topic_ends

    def _look(self) -> Known | None:
        try:
            return _known(self._reader.look(), self._reports)
        except TransportUnavailable:
            return None

    def _clear(self) -> None:
        """Remove what other runs have written, or are still working on: they cannot publish it any more."""
        for name in self._archive.place.names(ARCHIVING):
            self._archive.place.remove(f"{ARCHIVING}/{name}")

    def _failure(self, error: Exception, work: str) -> Exception:
        """Return an error for people in place of what ended the stream. Asks the brokers for a better explanation."""
        if not self._archive.place.exists(f"{work}/{_OWNER}"):
            return another_archives(self._archive)
        if isinstance(error, ArchiveRefused | ArchiveUnavailable | NotShared | TransportRefused):
            return error
        cause = cause_of(error)
        try:
            topic_ends = self._reader.look()
            beginning(self.ends, topic_ends, str(self._archive.place))
            if "overflow" in cause and (problem := too_late(self._reader.find_since(topic_ends, LATEST_MS + 1))):
                return ArchiveRefused(problem)
        except (TransportUnavailable, TransportRefused, ArchiveRefused) as better:
            return better
        if "No space left" in cause or "quota" in cause:
            return ArchiveUnavailable(f"{self._archive.place}: {cause}; free some space, the unfinished batch is archived again")
        return ArchiveUnavailable(f"the stream ended: {cause}; archive again, which continues where it ended")


def _follow(query: StreamingQuery, writer: BatchWriter, is_stopping: Callable[[], bool]) -> None:
    while not query.awaitTermination(_LOOK_SECONDS):
        if is_stopping() and not writer.is_busy:
            return


def _known(topic_ends: TopicEnds, reports: str) -> Known:
    ends: dict[str, dict[int, int]] = {}
    for partition, end in topic_ends.written.items():
        ends.setdefault(partition.topic, {})[partition.number] = end
    positions, counted = _by_number(topic_ends.positions), _by_number(topic_ends.counted)
    return Known(positions, ends, GroupEnds(counted, ends.get(reports, {})) if reports else None)


def _by_number(offsets: Mapping[Partition, int]) -> dict[int, int]:
    return {each.number: offset for each, offset in offsets.items()}
