"""A real mosquitto: what it keeps, and whom it lets in."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from msgspec.structs import replace

from guardian.ports import TransportWithheld
from notification_service.connectors.mqtt.connection import MqttConnection
from notification_service.connectors.mqtt.messages import outgoing
from notification_service.connectors.mqtt.settings import BrokerSettings
from servers.mosquitto import MosquittoServer, MosquittoSettings
from tests.notification_service.connectors.mqtt.stage import Subscriber

pytestmark = pytest.mark.slow

OwnServer = Callable[..., Any]


def test_sessions_and_messages_survive_a_restart_and_the_address_stays(own_server: OwnServer) -> None:
    server = own_server(MosquittoServer).start()
    Subscriber(server.url, "T", client_id="reader").close()
    publish(BrokerSettings(server.url), "T", b"one")
    address = server.url
    server.restart()
    assert server.url == address
    with closing(Subscriber(server.url, "T", client_id="reader")) as subscriber:
        assert [each.value for each in subscriber.wait_for(1)] == [b"one"]


def test_a_broker_that_is_paused_or_dead_is_not_ready(own_server: OwnServer) -> None:
    server = own_server(MosquittoServer).start()
    server.pause()
    assert not server.is_ready()
    server.resume()
    assert server.is_ready()
    server.kill()
    assert not server.is_ready()


def test_only_users_are_let_in_and_not_to_closed_topics(own_server: OwnServer) -> None:
    server = own_server(MosquittoServer, MosquittoSettings(users={"app": "secret"}, closed=("CLOSED",))).start()
    settings = BrokerSettings(server.url, "app", "secret")
    assert publish(settings, "OPEN", b"one") < 0x80
    assert publish(settings, "CLOSED", b"one") == 0x87
    with pytest.raises(TransportWithheld):
        MqttConnection(replace(settings, password="wrong"))


def publish(settings: BrokerSettings, topic: str, value: bytes) -> int:
    """Return the reason code of the confirmation."""
    with closing(MqttConnection(settings)) as connection:
        connection.publish(outgoing(topic, None, (), value), 1)
        return int(connection.next_confirmation().reason.value)
