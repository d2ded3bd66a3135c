"""Keeps what comes to the output topics in files in the form of the file transport, for comparing them as files.

A broker of MQTT keeps a message for those that are subscribed at that moment. So each subscription, a session of its own at the
broker, must be there before the service publishes, and the files stay: what was taken into them is with the broker no more.
"""

from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from guardian.ports import Channel, TransportRefused
from notification_service.connectors.line_format import Line, encode_line
from notification_service.connectors.mqtt.settings import BrokerSettings, MqttSinkSettings
from notification_service.connectors.optional_clients import connect_mqtt
from notification_service.connectors.region_port import Repeats

if TYPE_CHECKING:
    from notification_service.connectors.mqtt.connection import MqttConnection

_SILENCE_SECONDS = 1.0
_KEPT_SECONDS = 7 * 86_400
"""How long the broker keeps a session."""

_UNACKNOWLEDGED, _QOS = 1, 1
"""Artemis delivers messages out of order when several may be under way to a subscriber, or with qos 2. With one that may be under
way and two subscriptions of a session, it stops delivering: so each topic has a session.
"""


class TopicExport:
    """Appends to `<channel>.jsonl` in `directory` what has come, each record once; `repeats` counts what came again.

    `client_id` begins the names of the sessions: one export at a time may have them.
    """

    def __init__(self, settings: MqttSinkSettings, client_id: str, directory: Path) -> None:
        topics = {Channel.NOTIFICATIONS: settings.notifications, Channel.DEAD_LETTERS: settings.dead_letters}
        self.repeats = Repeats()
        self._copies = [
            _Copy(replace(settings, client_id=f"{client_id}-{channel}"), topic, directory / f"{channel}.jsonl", self.repeats)
            for channel, topic in topics.items()
        ]

    def subscribe(self) -> None:
        """Begin the subscriptions, or go on with them. What is published from then on is kept by the broker.

        Raises:
            TransportUnavailable: The broker does not answer.
            TransportRefused: It refuses the login or a topic, or it has forgotten a session.
        """
        for each in self._copies:
            each.subscribe()

    def catch_up(self) -> None:
        """Take what is there now.

        MQTT knows no end of a topic, and nothing says that a broker which is asked something sends its messages first. So the
        end is a silence that is longer than the broker takes to answer: then it grants the same subscription again, which loses
        no message (MQTT 5, MQTT-3.8.4-4), and no message has come meanwhile.

        Raises: as `subscribe`.
            TransportRefused: There is no subscription yet.
        """
        for each in self._copies:
            each.catch_up()

    def close(self) -> None:
        for each in self._copies:
            each.close()


class _Copy:
    """The messages of a topic, in a file. The file is there as soon as the topic was subscribed to."""

    def __init__(self, broker: BrokerSettings, topic: str, file: Path, repeats: Repeats) -> None:
        self._broker = broker
        self._topic = topic
        self._file = file
        self._repeats = repeats
        self._came: SimpleQueue[Any] = SimpleQueue()
        self._connection: MqttConnection | None = None
        repeats.read(file)

    def subscribe(self) -> "MqttConnection":
        if self._connection is not None and not self._connection.is_lost:
            return self._connection
        from notification_service.connectors.mqtt.connection import Session

        self.close()
        self._came = came = SimpleQueue[Any]()
        self._connection = connection = connect_mqtt(self._broker, Session(_KEPT_SECONDS, _UNACKNOWLEDGED), came.put)
        if self._file.exists() and not connection.has_session:
            problem = f"it has no session {self._broker.client_id} any more, so messages are missing. Remove {self._file.parent}"
            raise TransportRefused(self._broker.place, f"{problem}, and begin again")
        connection.subscribe([self._topic], _QOS)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.touch()
        return connection

    def catch_up(self) -> None:
        if not self._file.exists():
            problem = "nothing was subscribed to it yet. `simulate` subscribes before it writes: begin with it"
            raise TransportRefused(f"topic {self._topic} of {self._broker.place}", problem)
        connection = self.subscribe()
        silence = _SILENCE_SECONDS
        with self._file.open("ab") as file:
            while True:
                while message := self._next(silence):
                    line = _line(message)
                    if not message.retain and self._repeats.take(line):
                        file.write(encode_line(line))
                        file.flush()
                    connection.acknowledge(message.mid, message.qos)
                asked_at = monotonic()
                connection.subscribe([self._topic], _QOS)
                took = monotonic() - asked_at
                if self._came.empty() and took < silence:
                    return
                silence = max(silence, 2 * took)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _next(self, seconds: float) -> Any:
        """Return the next message; None if none comes within this time."""
        with suppress(Empty):
            return self._came.get(timeout=seconds)
        return None


def _line(message: Any) -> Line:
    properties = message.properties
    headers = tuple((name, value.encode()) for name, value in getattr(properties, "UserProperty", ()))
    return Line(message.payload, getattr(properties, "CorrelationData", None), headers)
