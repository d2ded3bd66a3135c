"""Connects to brokers whose client only some services need: each client is an extra of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from resequencer.errors import ConfigurationError

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import JmsConnection
    from notification_service.connectors.jms.settings import BrokerSettings as JmsBroker
    from notification_service.connectors.mqtt.connection import MqttConnection, OnMessage, Session
    from notification_service.connectors.mqtt.settings import BrokerSettings as MqttBroker


def connect_jms(settings: "JmsBroker") -> "JmsConnection":
    """Return a new connection by AMQP 1.0, which is open.

    Raises:
        ConfigurationError: The client is not installed; the text names the remedy.
        TransportUnavailable: The broker does not answer.
        TransportWithheld: It refuses the login.
    """
    with _client("python-qpid-proton", "JMS and XMS", "jms"):
        from notification_service.connectors.jms.connection import JmsConnection

    return JmsConnection(settings)


def connect_mqtt(
    settings: "MqttBroker", session: "Session | None" = None, on_message: "OnMessage | None" = None
) -> "MqttConnection":
    """Return a new connection, which is open.

    Raises:
        ConfigurationError: The client is not installed; the text names the remedy.
        TransportUnavailable, TransportWithheld, TransportRefused: As `MqttConnection`.
    """
    with _client("paho-mqtt", "MQTT", "mqtt"):
        from notification_service.connectors.mqtt.connection import MqttConnection

    return MqttConnection(settings, session, on_message)


@contextmanager
def _client(package: str, brokers: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        problem = f"is not installed ({error}); install it by `make setup-jms`, or pip install '.[{extra}]'"
        raise ConfigurationError(f"{package}, the client of {brokers} brokers,", problem) from error
