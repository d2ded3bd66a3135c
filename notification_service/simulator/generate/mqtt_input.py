"""Publishes simulated lines to the topic from which the bridge takes them."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace

from guardian.backoff import RetryWithBackoff
from guardian.ports import Channel, OutputRecord, TransportRefused, TransportUnavailable
from notification_service.connectors.mqtt.messages import outgoing
from notification_service.connectors.mqtt.settings import MqttSourceSettings
from notification_service.connectors.optional_clients import connect_mqtt
from notification_service.connectors.region_port import Numbered
from notification_service.simulator.generate.input import LINES_PER_FLUSH, Input, read_line
from resequencer.errors import ResequencerError
from resequencer.record import Partition

if TYPE_CHECKING:
    from notification_service.connectors.mqtt.connection import MqttConnection

_QOS = 1


class MqttInput(Input):
    """Publishes a line's key, headers and value as a message. What is sent again after an outage may be there twice.

    `partition_of` is the partitioner of the bridge's start. Offsets are the bridge's, and not known here. `retry` logs
    while the broker does not answer.

    It waits until the broker has a session of the bridge.

    Raises:
        TransportRefused: The session has ended, so the broker has kept nothing.
    """

    def __init__(self, settings: MqttSourceSettings, partition_of: Callable[[bytes], int], retry: RetryWithBackoff) -> None:
        self._broker = replace(settings, client_id=None)
        self._topic = topic_in(settings.topics[0])
        self._partition_of = partition_of
        self._retry = retry
        self._waiting: list[Numbered] = []
        self._has_session = False
        self._connection: MqttConnection | None = None
        retry.until_answered("input", self._connected)

    def partition_of(self, key: bytes) -> int:
        return self._partition_of(key)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def append(self, partition: int, line: bytes) -> None:
        record = read_line(line)
        sent = OutputRecord(len(self._waiting) + 1, Channel.NOTIFICATIONS, record.key, record.headers, record.value)
        self._waiting.append(Numbered(Partition(self._topic, partition), sent))
        if len(self._waiting) >= LINES_PER_FLUSH:
            self.flush()

    def append_and_tell(self, partition: int, line: bytes) -> int:
        raise TransportRefused(
            f"topic {self._topic}", f"the offset of a line of partition {partition} is the bridge's: {line!r:.60}"
        )

    def flush(self) -> None:
        """Wait until the broker has all messages. Those that it may have already are sent again after an outage."""
        if self._waiting:
            self._retry.until_answered("input", self._send)

    def _send(self) -> None:
        if not self._has_session:
            # A message without a subscriber is kept for none, so it may be sent again.
            if self._publish(self._waiting[:1]):
                problem = "the broker has no session of the bridge, and would keep nothing. Start it: `resequencer start`"
                raise TransportUnavailable(f"topic {self._topic}: {problem}")
            self._has_session = True
            self._waiting = self._waiting[1:]
        if undelivered := self._publish(self._waiting):
            problem = f"{undelivered} messages had no subscriber, so they are lost: the session of the bridge has ended"
            raise TransportRefused(f"topic {self._topic}", problem)
        self._waiting = []

    def _publish(self, messages: list[Numbered]) -> int:
        """Publish the messages, and return how many of them had no subscriber."""
        from notification_service.connectors.mqtt.sink import Sending

        sending = Sending(self._connected(), _QOS)
        sending.send(messages, lambda each: outgoing(self._topic, each.key, each.headers, each.value))
        return sending.undelivered

    def _connected(self) -> "MqttConnection":
        if self._connection is None or self._connection.is_lost:
            with suppress(ResequencerError):
                self.close()
            self._connection = connect_mqtt(self._broker)
        return self._connection


def topic_in(topic_filter: str) -> str:
    """Return a topic that matches the filter."""
    return "/".join("simulator" if each in ("+", "#") else each for each in topic_filter.split("/"))
