"""Keeps what comes to the output topics in files in the form of the file transport, for comparing them as files.

A broker of MQTT keeps a message for those that are subscribed at that moment. So the subscription, a session of its own at the
broker, must be there before the service publishes, and the files stay: what was taken into them is with the broker no more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedWriter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from connectors.line_format import Line, encode_line
from connectors.mqtt.client import connect
from connectors.mqtt.settings import MqttSinkSettings
from connectors.port import Channel, TransportRefused
from connectors.region.repeats import Repeats

if TYPE_CHECKING:
    from connectors.mqtt.connection import MqttConnection

_SILENCE_SECONDS = 1.0
_KEPT_SECONDS = 7 * 86_400
"""How long the broker keeps the session."""

_UNACKNOWLEDGED, _QOS = 1, 1
"""Artemis delivers messages out of order when several may be under way to a subscriber, or with qos 2."""

_MOST_AT_ONCE = 500


class TopicExport:
    """Appends to `<channel>.jsonl` in `directory` what has come, each record once; `repeats` counts what came again.

    `client_id` names the session: one export at a time may have it.
    """

    def __init__(self, settings: MqttSinkSettings, client_id: str, directory: Path) -> None:
        self._settings = replace(settings.broker, client_id=client_id)
        self._topics = {settings.notifications: Channel.NOTIFICATIONS, settings.dead_letters: Channel.DEAD_LETTERS}
        self._directory = directory
        self._came: SimpleQueue[Any] = SimpleQueue()
        self._connection: MqttConnection | None = None
        self.repeats = Repeats()
        for channel in self._topics.values():
            self.repeats.read(self._file(channel))

    def subscribe(self) -> None:
        """Begin the subscription, or go on with it. What is published from then on is kept by the broker.

        Raises:
            TransportUnavailable: The broker does not answer.
            TransportRefused: It refuses the login or a topic, or it has forgotten the session.
        """
        if self._connection is not None and not self._connection.is_lost:
            return
        from connectors.mqtt.connection import Session

        self.close()
        self._came = came = SimpleQueue[Any]()
        self._connection = connection = connect(self._settings, Session(_KEPT_SECONDS, _UNACKNOWLEDGED), came.put)
        mark = self._directory / "subscribed"
        if mark.exists() and not connection.has_session:
            problem = f"it has no session {self._settings.client_id} any more, so messages are missing. Remove {self._directory}"
            raise TransportRefused(self._settings.place, f"{problem}, and begin again")
        connection.subscribe(list(self._topics), _QOS)
        self._directory.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def catch_up(self) -> None:
        """Take what is there now.

        Raises: as `subscribe`.
            TransportRefused: There is no subscription yet.
        """
        if not (self._directory / "subscribed").exists():
            problem = "nothing was subscribed to these topics yet. `simulate` subscribes before it writes: begin with it"
            raise TransportRefused(f"{self._settings.place}, {', '.join(self._topics)}", problem)
        self.subscribe()
        assert self._connection is not None
        with self._files() as files:
            while messages := self._next():
                for each in messages:
                    self._keep(each, files)
                for file in files.values():
                    file.flush()
                for each in messages:
                    self._connection.acknowledge(each.mid, each.qos)
        if self._connection.problem is not None:
            raise self._connection.problem

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _next(self) -> list[Any]:
        """Return messages that have come; wait for the first one a moment."""
        found = []
        try:
            found.append(self._came.get(timeout=_SILENCE_SECONDS))
            while len(found) < _MOST_AT_ONCE:
                found.append(self._came.get_nowait())
        except Empty:
            pass
        return found

    def _keep(self, message: Any, files: dict[str, BufferedWriter]) -> None:
        properties = message.properties
        headers = tuple((name, value.encode()) for name, value in getattr(properties, "UserProperty", ()))
        line = Line(message.payload, getattr(properties, "CorrelationData", None), headers)
        if message.topic in files and not message.retain and not self.repeats.has_come(line):
            files[message.topic].write(encode_line(line))

    @contextmanager
    def _files(self) -> Iterator[dict[str, BufferedWriter]]:
        files = {topic: self._file(channel).open("ab") for topic, channel in self._topics.items()}
        try:
            yield files
        finally:
            for each in files.values():
                each.close()

    def _file(self, channel: Channel) -> Path:
        return self._directory / f"{channel}.jsonl"
