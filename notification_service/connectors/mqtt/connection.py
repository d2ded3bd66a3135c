"""A connection to a broker of MQTT 5, with a thread of the client that does all of its I/O.

The client does not reconnect by itself: what was not confirmed is sent again by the region alone, and a session is taken up again
by the bridge alone. So a connection that is lost stays lost, and another one has to be made.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from guardian.ports import TransportUnavailable
from notification_service.connectors.mqtt import foreign_text as foreign_text  # It changes the client.
from notification_service.connectors.mqtt.errors import FIRST_FAILURE, disconnected, lost, refused_connection, refused_topic
from notification_service.connectors.mqtt.messages import Outgoing
from notification_service.connectors.mqtt.settings import BrokerSettings
from resequencer.errors import ResequencerError

_FAREWELL_SECONDS = 1
_ID_BYTES = 2
_LOOK_SECONDS = 0.1
_ANY_SIZE = 268_435_460
"""The largest packet of MQTT, in bytes."""


class Session(NamedTuple):
    """A session that the broker keeps for `expiry_s` seconds after the connection. It is taken up if the client id has one.

    `receive_maximum` is how many messages the broker may send without an acknowledgement; some brokers exceed it.
    """

    expiry_s: int
    receive_maximum: int


class Limits(NamedTuple):
    """What the broker announced: how many messages may be without confirmation, the bytes of a packet, and the highest qos."""

    receive_maximum: int
    packet_bytes: int
    qos: int


class Confirmation(NamedTuple):
    """The broker's word on the message `mid`. `reason` is a code of MQTT 5."""

    mid: int
    reason: Any


class _Client(Client):
    """The client, which looks at the reason code with which a broker refuses a message with qos 2.

    By itself it asks for the completion of a refused message, which brokers grant: the message would count as confirmed.
    """

    refused: Callable[[Confirmation], None]

    @property
    def is_running(self) -> bool:
        """Whether its thread runs. An error in the thread ends it, and nothing else tells of that."""
        return self._thread is not None

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = bytes(self._in_packet["packet"])
        if len(packet) > _ID_BYTES and packet[_ID_BYTES] >= FIRST_FAILURE:
            reason = ReasonCode(PacketTypes.PUBREC, identifier=packet[_ID_BYTES])
            self.refused(Confirmation(int.from_bytes(packet[:_ID_BYTES], "big"), reason))
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return super()._handle_pubrec()


OnMessage = Callable[[Any], None]
"""Gets a message of the client, in its thread, before it is acknowledged. It must not wait for that thread."""


class MqttConnection:
    """An open connection. `has_session` says whether the broker had a session for the client id.

    Without a `session` the broker keeps nothing. Messages are acknowledged by `acknowledge` alone.

    Raises of the constructor:
        TransportUnavailable: The broker does not answer.
        TransportWithheld, TransportRefused: It refuses the login or the connection.
    """

    def __init__(self, settings: BrokerSettings, session: Session | None = None, on_message: OnMessage | None = None) -> None:
        self._settings = settings
        self._seconds = settings.call_timeout_ms / 1000
        self._problem: ResequencerError | None = None
        self._opened, self._ended, self._subscribed = Event(), Event(), Event()
        self._topics: list[str] = []
        self._subscription: list[Any] = []
        self.has_session = False
        self.limits = Limits(20, _ANY_SIZE, 2)
        self.confirmations: SimpleQueue[Confirmation | None] = SimpleQueue()
        """What the broker has confirmed since it was last looked at; None once the connection is lost."""
        self._client = self._made(on_message)
        self._connect(session)

    @property
    def problem(self) -> ResequencerError | None:
        """Why the connection is lost; None while it is not. Also an unexpected end of the client's thread is a loss."""
        if self._problem is None and not self._client.is_running:
            self._problem = lost(self._settings.place, "the thread of the client has ended")
        return self._problem

    @property
    def is_lost(self) -> bool:
        return self.problem is not None

    def publish(self, outgoing: Outgoing, qos: int) -> int:
        """Give a message to the client, and return its `mid`, which a confirmation names.

        No more than `limits.receive_maximum` messages may be unconfirmed. The confirmation may come before this call returns.
        With qos 0 it means that the message was written to the socket.
        """
        # The client calls back under a lock that this call needs: so no lock of ours may be held here.
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = list(outgoing.properties)
        if outgoing.correlation is not None:
            properties.CorrelationData = outgoing.correlation
        return int(self._client.publish(outgoing.topic, outgoing.payload, qos, properties=properties).mid)

    def next_confirmation(self) -> Confirmation:
        """Wait for the next confirmation.

        Raises:
            TransportUnavailable: None came within the time of an answer, or the connection is lost.
        """
        try:
            found = self.confirmations.get(timeout=self._seconds)
        except Empty:
            self._problem = TransportUnavailable(f"{self._settings.place}: the broker does not answer")
            raise self._problem from None
        if found is None:
            raise self._as_lost()
        return found

    def subscribe(self, topics: list[str], qos: int, is_blocked: Callable[[], bool] = lambda: False) -> int | None:
        """Subscribe to topics, wait until the broker has granted them, and return the lowest qos that it has granted.

        Returns None as soon as `is_blocked`: the answer may be behind messages for which there is no room. `find_granted` has it
        later.

        Raises:
            TransportUnavailable: No answer, or the connection is lost.
            TransportWithheld, TransportRefused: The broker refuses a topic.
        """
        self._subscribed.clear()
        self._topics = topics
        # A retained message comes with a new subscription only, not whenever the session is taken up.
        options = SubscribeOptions(qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        self._client.subscribe([(each, options) for each in topics])
        until = monotonic() + self._seconds
        while not self._subscribed.wait(_LOOK_SECONDS):
            if is_blocked():
                return None
            if self.is_lost or monotonic() > until:
                raise self._as_lost()
        return self.find_granted()

    def find_granted(self) -> int | None:
        """Return the lowest qos that the broker has granted, None while it has not answered. Raises: as `subscribe`."""
        if not self._subscribed.is_set():
            return None
        for topic, reason in zip(self._topics, self._subscription, strict=False):
            if reason.value >= FIRST_FAILURE:
                raise refused_topic(topic, reason)
        if self.is_lost:
            raise self._as_lost()
        return min(int(reason.value) for reason in self._subscription)

    def acknowledge(self, mid: int, qos: int) -> None:
        """Acknowledge a message that came."""
        self._client.ack(mid, qos)

    def close(self) -> None:
        """End the connection. A broker that takes nothing more does not keep it open."""
        connection: Any = self._client.socket()
        self._client.disconnect()
        if connection is not None and not self._ended.wait(_FAREWELL_SECONDS):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        # Its thread ends by itself then. The client forgets the thread at that moment, and would trip over it here.
        with suppress(AttributeError):
            self._client.loop_stop()
        self._client.on_connect = self._client.on_disconnect = self._client.on_publish = self._client.on_subscribe = None
        self._client.on_message = None  # No cycle remains, so its sockets are closed as soon as it is let go.

    def _made(self, on_message: OnMessage | None) -> _Client:
        settings = self._settings
        client = _Client(
            CallbackAPIVersion.VERSION2, settings.client_id or "", protocol=MQTTv5, manual_ack=True, reconnect_on_failure=False
        )
        client.refused = self.confirmations.put
        client.connect_timeout = self._seconds
        client.max_inflight_messages_set(0)  # Whoever publishes keeps to the limit; the client's own search takes long.
        if settings.user is not None:
            client.username_pw_set(settings.user, settings.password)
        if settings.has_tls:
            client.tls_set()
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_publish, client.on_subscribe = self._on_publish, self._on_subscribe
        if on_message is not None:  # A session that is taken up delivers at once.
            client.on_message = lambda _client, _data, message: on_message(message)
        return client

    def _connect(self, session: Session | None) -> None:
        asked = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        if session is not None:
            asked.SessionExpiryInterval = session.expiry_s
            asked.ReceiveMaximum = session.receive_maximum
        (host, port), keepalive = self._settings.address, max(1, self._settings.heartbeat_ms // 1000)
        try:
            self._client.connect(host, port, keepalive, clean_start=session is None, properties=asked)
        except (OSError, ValueError) as error:
            raise lost(self._settings.place, error) from error
        self._client.loop_start()
        if not self._opened.wait(self._seconds):
            self._problem = self._problem or TransportUnavailable(f"{self._settings.place}: the broker does not answer")
        if self._problem is not None:
            self.close()
            raise self._problem

    def _as_lost(self) -> ResequencerError:
        if self._problem is None:
            self._problem = TransportUnavailable(f"{self._settings.place}: the broker does not answer")
        self.confirmations.put(None)
        return TransportUnavailable(str(self._problem))

    def _on_connect(self, _client: Client, _data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.value >= FIRST_FAILURE:
            self._problem = refused_connection(self._settings.place, reason)
        else:
            self.has_session = flags.session_present
            announced = (("ReceiveMaximum", 65_535), ("MaximumPacketSize", _ANY_SIZE), ("MaximumQoS", 2))
            self.limits = Limits(*(getattr(properties, name, default) for name, default in announced))
        self._opened.set()

    def _on_disconnect(self, _client: Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self._problem = self._problem or disconnected(self._settings.place, reason)
        self.confirmations.put(None)
        for each in (self._ended, self._opened, self._subscribed):
            each.set()

    def _on_publish(self, _client: Client, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        self.confirmations.put(Confirmation(mid, reason))

    def _on_subscribe(self, _client: Client, _data: Any, _mid: int, reasons: list[Any], _properties: Any) -> None:
        self._subscription = reasons
        self._subscribed.set()
