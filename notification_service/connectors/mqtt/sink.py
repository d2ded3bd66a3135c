"""The sink of MQTT. It keeps no marker: after a reset what is pending leaves again. So with qos 1 and 2 it leaves at least
once, and with qos 0 it may be lost.

The messages of one unit wait for each other: the next is sent once the one before is confirmed. MQTT demands that a broker keeps
the order of a topic, but Artemis mixes up messages that are under way at the same time (ARTEMIS-6191). Messages of different
units are under way together.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from guardian.ports import Channel, OutputRecord, PartitionOutput, TransportRefused
from notification_service.connectors.mqtt.errors import FIRST_FAILURE, NOT_DELIVERED, refused_topic
from notification_service.connectors.mqtt.messages import Outgoing, outgoing
from notification_service.connectors.mqtt.preflight import refuse_qos
from notification_service.connectors.mqtt.settings import BrokerSettings, MqttSinkSettings
from notification_service.connectors.optional_clients import connect_mqtt
from notification_service.connectors.region_port import Numbered, Published, SinkCapabilities, find_fitting
from resequencer.clock import Clock
from resequencer.errors import ResequencerError
from resequencer.printable import counted
from resequencer.record import Partition

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
    """Return the places of the records by their units. A record without one has a lane of its own."""
    lanes: dict[object, _Lane] = {}
    for place, (partition, record) in enumerate(records):
        unit = record.lane
        lane = place if unit is None else (partition, unit)
        lanes.setdefault(lane, deque()).append(place)
    return list(lanes.values())


class MqttSink:
    """Implements the port of sinks. Nothing is connected before the first publication.

    `current` returns the settings that count now. They are asked for before each publication, so what is pending leaves by
    those that count when it leaves. `clock` gives the instant of dead letters that are made here.
    """

    capabilities = SinkCapabilities(is_transactional=False, remembers=False)

    def __init__(
        self,
        current: Callable[[], MqttSinkSettings],
        clock: Clock,
        connect: "Callable[[BrokerSettings], MqttConnection]" = connect_mqtt,
    ) -> None:
        self._current = current
        self._clock = clock
        self._connect = connect
        self._connection: MqttConnection | None = None
        self._url: str | None = None
        self._published = Published()
        self._undelivered = 0
        self._changes: str | None = None

    @property
    def notes(self) -> Sequence[str]:
        """As the port describes. A broker that has no subscriber for a message takes it, confirms it and drops it."""
        notes = [] if self._changes is None else [self._changes]
        if self._undelivered:
            dropped = counted(self._undelivered, "message")
            notes.append(f"sink mqtt: the broker dropped {dropped} of the last publication, which had no subscriber")
        return notes

    def position(self, partition: Partition) -> None:
        """None: the sink does not remember. Nothing is fenced: an earlier owner may still send."""
        self._published.forget(partition)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """As the port describes. A notification that is too large for the broker leaves as a dead letter under its number.

        Raises:
            TransportRefused: The broker does not take a message, or not with this qos.
        """
        settings = self._current()
        self._changes = settings.changes
        topics = {Channel.NOTIFICATIONS: settings.notifications, Channel.DEAD_LETTERS: settings.dead_letters}
        remaining = [each for each in self._published.remaining(outputs) if each.record.channel in topics]
        if remaining:
            self._send(remaining, topics, settings)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(self, remaining: Sequence[Numbered], topics: dict[Channel, str], settings: MqttSinkSettings) -> None:
        connection = self._connected(settings)
        limits = connection.limits
        refuse_qos(settings, limits.qos)
        sending = Sending(connection, settings.qos)
        try:
            sending.send(remaining, lambda record: self._message(record, topics, limits.packet_bytes))
        except ResequencerError:
            self.close()  # What is under way on it has no effect any more.
            raise
        finally:
            self._published.note(remaining[: sending.confirmed])
        self._undelivered = sending.undelivered

    def _message(self, record: OutputRecord, topics: dict[Channel, str], max_bytes: int) -> Outgoing:
        """Return the message of a record, or of a smaller one that the broker takes.

        Raises:
            TransportRefused: It takes none.
        """

        def made(each: OutputRecord) -> Outgoing:
            return outgoing(topics[each.channel], each.key, each.headers, each.value)

        def find_problem(each: OutputRecord) -> str | None:
            size = made(each).packet_bytes
            return None if size <= max_bytes else f"the packet takes {size} bytes, but the broker accepts {max_bytes}"

        found = find_fitting(record, find_problem, self._clock.now())
        if found is None:
            problem = f"the broker accepts packets of {max_bytes} bytes only. Raise its limit"
            raise TransportRefused(f"topic {topics[record.channel]}", problem)
        return made(found)

    def _connected(self, settings: MqttSinkSettings) -> "MqttConnection":
        if self._connection is None or self._connection.is_lost or settings.url != self._url:
            self.close()
            self._connection, self._url = self._connect(settings), settings.url
        return self._connection
