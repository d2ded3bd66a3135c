"""Reads the markers' topic."""

from typing import Any

from kafka import TopicPartition

from guardian.ports import TransportWithheld
from notification_service.connectors.kafka.core.marker import PARTITION, Marker, decode_marker
from notification_service.connectors.kafka.made_topics import make_topics
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.connectors.kafka.topics import Topics

_CONFIGURATION = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    # The brokers compact only what is not in the last segment, and each publication writes a marker.
    "segment.bytes": str(16 << 20),
}
_FIRST_LOOK = 1_000
"""How many records are read first: a partition at work has its marker there. Each further look is four times as long."""


def loses_markers(topic: str, policy: str | None) -> TransportWithheld | None:
    """Return the refusal of a topic with this cleanup.policy; None if it keeps all markers, or the policy is not known."""
    if policy in (None, "compact"):
        return None
    problem = f"its cleanup.policy is {policy}, so the brokers would delete markers, and records would leave twice"
    return TransportWithheld(f"topic {topic}", f"{problem}. Set it to compact")


class Markers:
    """Finds markers in the topic that is the input of `settings`. Any call but `close` may raise as those of sinks do."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._topic = settings.topics.input
        self._reader: CommittedReader | None = None

    def make_topic(self, topics: Topics) -> None:
        """Make the topic if it is missing.

        Raises:
            TransportRefused: It cannot be made, or its markers would get lost.
        """
        make_topics(self._settings, self._settings.topics.notifications, {self._topic: _CONFIGURATION})
        topics.look()
        if (problem := loses_markers(self._topic, topics.find_setting(self._topic, "cleanup.policy"))) is not None:
            raise problem

    def find(self, key: str) -> Marker | None:
        """Return the last marker with this key; None if there is none. Its owner's transactions are all decided.

        Raises:
            TransportUnavailable: The brokers do not answer, or a transaction of another partition is open for long.
        """
        try:
            found = self._search(key.encode())
        except BaseException:
            self.close()
            raise
        return None if found is None else decode_marker(self._topic, key, found.value)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _search(self, key: bytes) -> Any:
        """Read backwards, in ever longer pieces, until the key is found."""
        if self._reader is None:
            self._reader = CommittedReader(self._settings, [self._topic], {PARTITION})
        reader, name, length = self._reader, TopicPartition(self._topic, PARTITION), _FIRST_LOOK
        # What an earlier owner has left open is ended already. The rest is at work, or is ended by the takeovers that follow.
        upper = reader.decided_ends(self._settings.undecided_wait_ms / 1000)[name]
        begin = reader.begins()[name]
        while upper > begin:
            lower = max(begin, upper - length)
            reader.seek(name, lower)
            found = None
            for _, records in reader.read({name: upper}):
                found = next((each for each in reversed(records) if each.key == key), found)
            if found is not None:
                return found
            upper, length = lower, 4 * length
        return None
