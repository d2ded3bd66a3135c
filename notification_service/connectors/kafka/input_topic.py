"""The input topic as the positions know it, and notes about the topic for operators."""

import logging
from collections.abc import Iterable

from guardian.ports import Position
from notification_service.connectors.kafka.core.fencing import Committed
from notification_service.connectors.kafka.core.offset_metadata import OffsetMetadata, find_metadata
from notification_service.connectors.kafka.producer import partition_of
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topic, Topics, recreated
from resequencer.record import Partition, Record

_LONGEST_KEY = 256


class Placement:
    """Counts misplaced records. Records without a key, and those with a key of over 256 bytes, do not count."""

    def __init__(self) -> None:
        self.misplaced = 0

    def look(self, records: Iterable[Record], partitions: int) -> None:
        """Count the misplaced ones among records of a topic that always had this number of partitions."""
        for record in records:
            if record.key is not None and len(record.key) <= _LONGEST_KEY:
                self.misplaced += partition_of(record.key, partitions) != record.origin.partition.number


_LOG = logging.getLogger("resequencer.connectors")


class Input:
    """`notes` are sentences about problems that do not stop the service. Each is logged once."""

    def __init__(self, settings: KafkaSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics
        self._topic: Topic | None = None
        self._partitions: int | None = None
        self._notes: dict[str, str] = {}
        self._placement = Placement()

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes.values())

    @property
    def misplaced(self) -> int:
        """The number of records read from another partition than Kafka's default partitioner gives for their key."""
        return self._placement.misplaced

    def connect(self) -> None:
        """Look at the topics for the first time.

        Raises:
            TransportRefused: A topic or a right is missing.
        """
        if self._topic is not None:
            return
        self.look()
        if self._topics.ask_whether_compacted():
            self._note(
                "compacted",
                f"topic {self._settings.topics.input} is compacted: the brokers delete all envelopes of a key but the last, so "
                "envelopes get lost. Set its cleanup.policy to delete",
            )

    def look(self) -> Topic:
        """Return the topic as it is now. A recreated topic of the same name is refused; added partitions are noted."""
        self._topic = self._topics.look()
        self._note_growth(self._partitions, "since this worker started")
        self._partitions = self._partitions or self._topic.partitions
        return self._topic

    def source(self) -> str:
        """Return the name of the log that offsets count in, with the group that owns the positions. Asks the brokers again."""
        return f"{self.look().topic_id} {self._settings.group_id}"

    def committed(self, partition: Partition, position: Position) -> Committed:
        """Return the position in the form in which it is committed.

        Raises:
            TransportRefused: The metadata is longer than brokers accept.
        """
        topic = self._known()
        metadata = OffsetMetadata(topic.topic_id, topic.partitions, position.metadata)
        return Committed(position.offset, metadata.encode(str(partition)))

    def position(self, partition: Partition, committed: Committed) -> Position:
        """Return a committed position. One that another program committed is noted, and returned without metadata.

        Raises:
            TransportRefused: It belongs to a deleted topic, or a newer version wrote it.
        """
        metadata, topic = find_metadata(committed.metadata, str(partition)), self._known()
        if metadata is None:
            text = f"{committed.metadata[:80]!r}" if committed.metadata else "none"
            note = f"the position of {partition}, offset {committed.offset}, was set by another program (its metadata: {text})"
            self._note(f"foreign {partition}", note)
            return Position(committed.offset, "")
        if metadata.topic_id != topic.topic_id:
            raise recreated(self._settings.topics, metadata.topic_id, topic.topic_id)
        self._note_growth(metadata.partitions, "since its positions were last written")
        return Position(committed.offset, metadata.text)

    def look_at_keys(self, records: Iterable[Record]) -> None:
        """Count misplaced records. Skipped for a topic that has grown: its older records were placed by the old count."""
        if "grown" in self._notes:
            return
        before = self._placement.misplaced
        self._placement.look(records, self._known().partitions)
        if not before and self._placement.misplaced:
            self._note(
                "misplaced",
                f"records of topic {self._known().name} are in another partition than Kafka's default partitioner gives for "
                "their key. That is harmless if all producers use the same partitioner. If not, envelopes of one unit are in "
                "several partitions and wait for each other in vain. Use one partitioner in all producers "
                "(librdkafka: partitioner = murmur2_random)",
            )

    def _known(self) -> Topic:
        return self._topic or self.look()

    def _note_growth(self, partitions: int | None, since: str) -> None:
        topic = self._known()
        if partitions is not None and partitions != topic.partitions:
            grown = f"topic {topic.name} has grown from {partitions} to {topic.partitions} partitions {since}"
            cost = "until the backlog is drained, a unit's later envelopes may be in another partition and lose their order"
            self._note("grown", f"{grown}: {cost}")

    def _note(self, key: str, text: str) -> None:
        if self._notes.get(key) != text:
            self._notes[key] = text
            _LOG.warning("%s", text)
