"""Fits output records to what the topics accept now."""

from collections.abc import Sequence

from guardian.ports import Channel, OutputRecord, TransportRefused
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.core.size_limits import SizeLimits, refused_for_size
from notification_service.connectors.kafka.producer import NotTaken
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics
from resequencer.clock import Clock


class Fitting:
    """A record that its topic refuses is replaced by a dead letter of the same number. `clock` gives the letters' instant."""

    def __init__(self, settings: KafkaSettings, topics: Topics, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._size_limits = SizeLimits(settings.topics, {})

    def look(self) -> None:
        """Read the topics' current limits."""
        topics, most = self._settings.topics, self._settings.max_request_bytes
        limits = self._topics.limits(*(name for channel in Channel if (name := topics.output(channel))))
        self._size_limits = SizeLimits(topics, {topic: min(limit, most) for topic, limit in limits.items()})

    def has_topic(self, output: OutputRecord) -> bool:
        """Whether the record has a topic. A fact that was pending when aggregation was switched off has none, and is dropped."""
        return output.channel is not Channel.FACTS or bool(self._settings.topics.facts)

    def fit(self, output: Sequence[OutputRecord]) -> list[ProducerRecord]:
        """Return the record to send for each of the output.

        Raises:
            TransportRefused: A fact or a value is too large for its topic.
        """
        now = self._clock.now()
        try:
            return [self._size_limits.fit(each, now) for each in output]
        except TransportRefused:
            self.look()  # The limit may have been raised meanwhile, as the last refusal asked for.
            return [self._size_limits.fit(each, now) for each in output]

    def instead(self, output: OutputRecord, record: ProducerRecord, error: NotTaken) -> ProducerRecord:
        """Return what to send instead of a record that the brokers have refused.

        Raises:
            TransportRefused: There is nothing smaller.
        """
        self.look()
        if output.channel is Channel.NOTIFICATIONS:
            letter = self._size_limits.letter(output, str(error), self._clock.now())
        else:
            letter = self._size_limits.fit(output, self._clock.now())
        size = len(record.value or b"")
        if output.channel in (Channel.FACTS, Channel.VALUES) and record == letter:
            what = "fact" if output.channel is Channel.FACTS else "value"
            raise refused_for_size(record.topic, f"it does not accept a {what} of {size} bytes ({error})")
        if record.topic == letter.topic and size <= len(letter.value or b""):
            problem = f"it does not accept a dead letter of {size} bytes ({error})"
            raise TransportRefused(f"topic {record.topic}", f"{problem}. Raise its max.message.bytes, and keep it uncompacted")
        return letter
