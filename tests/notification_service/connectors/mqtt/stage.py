"""A broker's topics for tests: a subscriber that keeps what comes, and the sinks that send to them.

The subscriber is the bare client, so that it shares no mistake with what is tested.
"""

import time
from collections.abc import Callable
from threading import Event
from typing import Any, NamedTuple
from uuid import uuid4

from harness.waiting import DEADLINE_SECONDS, wait_until
from msgspec.structs import asdict
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from guardian.ports import Channel
from notification_service.connectors.mqtt.settings import BrokerSettings, MqttSinkSettings
from notification_service.connectors.mqtt.sink import MqttSink
from resequencer.record import Headers
from servers.artemis import ArtemisServer
from servers.mosquitto import MosquittoServer

PATIENT_MS = 60_000
Broker = ArtemisServer | MosquittoServer


class Clock:
    def now(self) -> int:
        return int(time.time() * 1000)


class Came(NamedTuple):
    """A message as its subscriber sees it."""

    topic: str
    key: bytes | None
    value: bytes
    headers: Headers
    qos: int


class Subscriber:
    """Subscribed to a topic from its making on; `came` has the messages in their order.

    Artemis delivers out of order when several messages may be under way to a subscriber, and with qos 2.
    """

    def __init__(self, url: str, topic: str, qos: int = 1, client_id: str | None = None, **login: str) -> None:
        self.came: list[Came] = []
        self._topic = topic
        self._client = client = Client(CallbackAPIVersion.VERSION2, client_id or f"sub-{uuid4().hex[:12]}", protocol=MQTTv5)
        if login:
            client.username_pw_set(**login)
        subscribed = Event()
        client.on_message = lambda _client, _data, message: self.came.append(_came(message))
        client.on_subscribe = lambda *_: subscribed.set()
        asked = Properties(PacketTypes.CONNECT)
        asked.SessionExpiryInterval = 600
        asked.ReceiveMaximum = 1
        host, _, port = url.removeprefix("mqtt://").partition(":")
        client.connect(host, int(port), clean_start=False, properties=asked)
        client.loop_start()
        client.subscribe(topic, qos)
        assert subscribed.wait(DEADLINE_SECONDS)

    def wait_for(self, count: int) -> list[Came]:
        """Wait until so many have come, and with them all that the broker had confirmed before."""
        wait_until(lambda: len(self.came) >= count, f"{count} messages")
        mark = uuid4().bytes
        self._client.publish(self._topic, mark, 1)
        last = wait_until(lambda: next((each for each in list(self.came) if each.value == mark), None), "a message behind them")
        self.came.remove(last)
        return list(self.came)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self._client.on_message = self._client.on_subscribe = None  # They refer to each other.


class Topics(NamedTuple):
    """The topics of one test on a broker."""

    server: Broker
    name: str
    heartbeat_ms: int
    call_ms: int

    @classmethod
    def fresh(cls, server: Broker, heartbeat_ms: int = PATIENT_MS, call_ms: int = PATIENT_MS) -> "Topics":
        """With the defaults a broker counts as lost only if it closes the connection."""
        return cls(server, f"T-{uuid4().hex[:12]}", heartbeat_ms, call_ms)

    @property
    def broker(self) -> BrokerSettings:
        return BrokerSettings(self.server.mqtt_url, heartbeat_ms=self.heartbeat_ms, call_timeout_ms=self.call_ms)

    def settings(self, broker: BrokerSettings | None = None, **settings: Any) -> MqttSinkSettings:
        names = {"notifications": f"{self.name}-N", "dead_letters": f"{self.name}-D"}
        return MqttSinkSettings(**{**asdict(broker or self.broker), **names, **settings})

    def sink(self, current: Callable[[], MqttSinkSettings] | None = None, **settings: Any) -> MqttSink:
        return MqttSink(current or (lambda: self.settings(**settings)), Clock())

    def topic(self, channel: Channel) -> str:
        return f"{self.name}-{'N' if channel is Channel.NOTIFICATIONS else 'D'}"

    def subscriber(self, channel: Channel = Channel.NOTIFICATIONS, **more: Any) -> Subscriber:
        return Subscriber(self.server.mqtt_url, self.topic(channel), **more)


def _came(message: Any) -> Came:
    properties = message.properties
    headers = tuple((name, value.encode()) for name, value in getattr(properties, "UserProperty", ()))
    return Came(message.topic, getattr(properties, "CorrelationData", None), message.payload, headers, message.qos)
