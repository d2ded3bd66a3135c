"""Sends the messages of one publication, and counts what the broker has confirmed.

The messages of one unit wait for each other: the next is sent once the one before is confirmed. MQTT demands that a broker keeps
the order of a topic, but Artemis mixes up messages that are under way at the same time (ARTEMIS-6191). Messages of different
units are under way together.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from guardian.ports import OutputRecord
from notification_service.connectors.mqtt.errors import FIRST_FAILURE, NOT_DELIVERED, refused_topic
from notification_service.connectors.mqtt.messages import Outgoing
from notification_service.connectors.region.left import Numbered

if TYPE_CHECKING:
    from notification_service.connectors.mqtt.connection import MqttConnection

_WINDOW = 500
"""The most messages without confirmation."""

_Lane = deque[int]
"""The places of a unit's messages that are not confirmed. The first one may be under way."""


class Sending:
    """Messages on their way. The first `confirmed` of them are with the broker; `undelivered` had no subscriber."""

    def __init__(self, connection: "MqttConnection", qos: int) -> None:
        self._connection = connection
        self._qos = qos
        self._window = min(_WINDOW, connection.limits.receive_maximum)
        self._under_way: dict[int, tuple[_Lane, str]] = {}
        self._early: set[int] = set()
        self.confirmed = 0
        self.undelivered = 0

    def send(self, records: Sequence[Numbered], make: Callable[[OutputRecord], Outgoing]) -> None:
        """Send the records as messages, and wait until each is confirmed.

        Raises:
            TransportUnavailable: The broker does not answer, or the connection is lost. Messages that are not counted may be
                with the broker all the same.
            TransportWithheld, TransportRefused: It refuses a message.
        """
        ready = deque(_lanes(records))
        while ready or self._under_way:
            while ready and len(self._under_way) < self._window:
                lane = ready.popleft()
                message = make(records[lane[0]].record)
                self._under_way[self._connection.publish(message, self._qos)] = lane, message.topic
            lane = self._confirm()
            if lane:
                ready.append(lane)

    def _confirm(self) -> _Lane:
        """Count the next confirmation, and return the rest of its lane. Confirmations may come in any order."""
        mid, reason = self._connection.next_confirmation()
        lane, topic = self._under_way.pop(mid)
        if reason.value >= FIRST_FAILURE:
            raise refused_topic(topic, reason)
        self.undelivered += reason.value == NOT_DELIVERED
        self._early.add(lane.popleft())
        while self.confirmed in self._early:
            self._early.remove(self.confirmed)
            self.confirmed += 1
        return lane


def _lanes(records: Sequence[Numbered]) -> list[_Lane]:
    """Return the places of the records by their units. A record without a key has a lane of its own."""
    lanes: dict[object, _Lane] = {}
    for place, (partition, record) in enumerate(records):
        lane = place if record.key is None else (partition, record.key)
        lanes.setdefault(lane, deque()).append(place)
    return list(lanes.values())
