"""Finds the client of MQTT, which only a service with MQTT needs."""

from typing import TYPE_CHECKING

from resequencer.errors import ConfigurationError

if TYPE_CHECKING:
    from notification_service.connectors.mqtt.connection import MqttConnection, OnMessage, Session
    from notification_service.connectors.mqtt.settings import BrokerSettings


def require_client() -> None:
    """Check that the client is installed.

    Raises:
        ConfigurationError: It is not; the text names the remedy.
    """
    try:
        import paho.mqtt  # noqa: F401 - A service without MQTT runs without it.
    except ImportError as error:
        problem = f"MQTT needs the package paho-mqtt, which cannot be imported ({error})"
        raise ConfigurationError("transport", f"{problem}: pip install 'resequencer[mqtt]'") from error


def connect(
    settings: "BrokerSettings", session: "Session | None" = None, on_message: "OnMessage | None" = None
) -> "MqttConnection":
    """Return a new connection, which is open.

    Raises:
        ConfigurationError: The client is not installed.
        TransportUnavailable, TransportWithheld, TransportRefused: As `MqttConnection`.
    """
    require_client()
    from notification_service.connectors.mqtt.connection import MqttConnection

    return MqttConnection(settings, session, on_message)
