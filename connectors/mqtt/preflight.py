"""Checks a broker for what the bridge will need. It takes no message."""

from contextlib import closing

from msgspec.structs import replace

from connectors.mqtt.client import connect
from connectors.mqtt.source import MqttSourceSettings


def preflight_source(settings: MqttSourceSettings) -> None:
    """Check the login, and the right to the topics. The session of the client id is left to a bridge that may run.

    Raises:
        TransportUnavailable, TransportRefused: As the bridge would meet them.
    """
    with closing(connect(replace(settings.broker, client_id=None))) as connection:
        connection.subscribe(list(settings.topics), settings.qos)
