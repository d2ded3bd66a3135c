"""Takes messages from a session of MQTT 5 for the bridge: they come again until they are acknowledged."""

import logging
import sys
from collections.abc import Callable, Sequence
from threading import Condition
from typing import TYPE_CHECKING, Any

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.line_format import Line
from notification_service.connectors.mqtt.errors import SessionTakenOver
from notification_service.connectors.mqtt.settings import MqttSourceSettings
from notification_service.connectors.optional_clients import connect_mqtt
from resequencer.errors import ConfigurationError

if TYPE_CHECKING:
    from notification_service.connectors.mqtt.connection import MqttConnection, OnMessage, Session

_LOG = logging.getLogger("resequencer.connectors")
_MAX_BYTES = 64 << 20
_USER_PROPERTY_BYTES = 256
"""What a user property takes in memory beside its texts: a pair, and the header that it becomes."""

Connect = Callable[[MqttSourceSettings, "Session", "OnMessage"], "MqttConnection"]


class MqttSource:
    """Implements the port of the bridge's sources. Messages of all topics come in the order in which the broker sends them.

    It takes no more than `queue_size` messages, and about 64 MiB of payload, topic and properties; one message may exceed that. A
    broker that sends more than it was allowed waits then: nothing is read from the connection until something was acknowledged.
    No maximum packet size is asked for: a broker discards what is larger, as if it had been sent.

    Raises of the constructor, of `take` and of `acknowledge`:
        TransportUnavailable: The broker does not answer.
        TransportWithheld, TransportRefused: It refuses the login, the session or a topic.
    """

    def __init__(self, settings: MqttSourceSettings, connect: Connect = connect_mqtt) -> None:
        from notification_service.connectors.mqtt.connection import Session

        self._settings = settings
        self._changed = Condition()
        self._waiting: list[Any] = []
        self._taken: list[Any] = []
        self._bytes = 0
        self._is_blocked = self._is_granted = self._is_closed = False
        self.notes: Sequence[str] = ()
        session = Session(settings.session_expiry_ms // 1000, settings.queue_size)
        self._connection = connect(settings, session, self._on_message)
        try:
            self._subscribe()
        except BaseException:
            self.close()
            raise

    def take(self, timeout_ms: int) -> list[Line]:
        """As notification_service/bridge/runner.py describes: payload, correlation data and user properties."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, timeout_ms / 1000)
            taken, self._waiting = self._waiting, []
            self._taken += taken
        self._check_open()
        return [_line(each) for each in taken]

    def acknowledge(self) -> None:
        self._check_open()
        for each in self._taken:
            self._connection.acknowledge(each.mid, each.qos)
        with self._changed:
            self._bytes -= sum(map(_size, self._taken))
            self._taken = []
            self._changed.notify_all()
        self._check_open()

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._waiting, self._taken = [], []
            self._changed.notify_all()
        self._connection.close()

    def _subscribe(self) -> None:
        settings = self._settings
        if not self._connection.has_session:
            note = f"the broker had no session for client id {settings.client_id}, and began one: it keeps messages from now on"
            self.notes = (note,)
            _LOG.warning("%s. At the first start this is as it should be; later it means that the broker lost messages", note)
        # A session that is taken up may send more than there is room for before it answers.
        self._check_granted(self._connection.subscribe(list(settings.topics), settings.qos, lambda: self._is_blocked))

    def _check_granted(self, granted: int | None) -> None:
        settings = self._settings
        self._is_granted = granted is not None
        if granted is not None and granted < min(settings.qos, 1):
            problem = f"it grants a quality of service of {granted} only, which promises nothing; raise it at the broker"
            raise TransportRefused(settings.place, problem)

    def _on_message(self, message: Any) -> None:
        """In the client's thread: while there is no room, the thread waits, and reads nothing more."""
        size = _size(message)
        with self._changed:
            self._is_blocked = not self._has_room(size)
            self._changed.wait_for(lambda: self._is_closed or self._has_room(size))
            self._is_blocked = False
            if not self._is_closed:
                self._waiting.append(message)
                self._bytes += size
                self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        count = len(self._waiting) + len(self._taken)
        return not count or (count < self._settings.queue_size and self._bytes + size <= _MAX_BYTES)

    def _check_open(self) -> None:
        if not self._is_granted:
            self._check_granted(self._connection.find_granted())
        problem = self._connection.problem
        if isinstance(problem, SessionTakenOver):
            whose = f"another bridge runs with client id {self._settings.client_id}"
            remedy = "Give each bridge a client id of its own, or stop the other one, and restart the service"
            text = f"{problem}: {whose}. This one ends, and does not take the session back. {remedy}"
            raise ConfigurationError("ipf.bridge.mqtt.client-id", text)
        if problem is not None:
            raise TransportUnavailable(str(problem))


def _line(message: Any) -> Line:
    properties = message.properties
    key = getattr(properties, "CorrelationData", None)
    headers = tuple((name, value.encode()) for name, value in getattr(properties, "UserProperty", ()))
    return Line(bytes(message.payload), None if key is None else bytes(key), headers)


def _size(message: Any) -> int:
    """Return about how many bytes a message takes in memory."""
    properties = message.properties
    texts = getattr(properties, "UserProperty", ())
    about = sum([sys.getsizeof(name) + 2 * sys.getsizeof(value) + _USER_PROPERTY_BYTES for name, value in texts])
    others = (getattr(properties, name, "") for name in ("CorrelationData", "ResponseTopic", "ContentType"))
    return len(message.payload) + len(message.topic) + about + sum(map(len, others))
