"""Checks a broker for what a sink or the bridge will need. It takes no message and sends none.

So the right to publish is not known before the first message.
"""

from contextlib import closing

from msgspec.structs import replace

from guardian.ports import TransportRefused
from notification_service.connectors.mqtt.settings import MqttSinkSettings, MqttSourceSettings
from notification_service.connectors.optional_clients import connect_mqtt


def preflight_source(settings: MqttSourceSettings) -> None:
    """Check the login, and the right to the topics. The session of the client id is left to a bridge that may run.

    Raises:
        TransportUnavailable, TransportRefused: As the bridge would meet them.
    """
    with closing(connect_mqtt(replace(settings, client_id=None))) as connection:
        connection.subscribe(list(settings.topics), settings.qos)


def preflight_sink(settings: MqttSinkSettings) -> None:
    """Check the login, and that the broker takes messages with this qos.

    Raises:
        TransportRefused: It takes a lower qos only, or refuses the connection.
        TransportUnavailable, TransportWithheld: The broker does not answer, or refuses the login.
    """
    with closing(connect_mqtt(settings)) as connection:
        refuse_qos(settings, connection.limits.qos)


def refuse_qos(settings: MqttSinkSettings, maximum: int) -> None:
    """Raise TransportRefused if the broker takes messages with qos `maximum` at most, and more is set."""
    if settings.qos > maximum:
        problem = f"the broker takes qos {maximum} at most, and mqtt.qos is {settings.qos}. Lower it"
        raise TransportRefused(settings.place, problem)
