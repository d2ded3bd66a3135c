"""Makes the settings of an MQTT sink from the configuration."""

from notification_service.configuration.configuration import Configuration
from notification_service.connectors.mqtt.settings import BrokerSettings, MqttSinkSettings


def mqtt_sink_settings(configuration: Configuration, slot: int | None = None) -> MqttSinkSettings:
    """Return broker and topics of the worker in this slot; None: of a command. No connection is made.

    Each has a client id of its own: a broker ends the connection of an earlier client with the same one.
    """
    mqtt = configuration.notification.mqtt
    suffix = "check" if slot is None else str(slot)
    client_id = None if mqtt.client_id is None else f"{mqtt.client_id}-{suffix}"
    broker = BrokerSettings(mqtt.url, mqtt.user, mqtt.password, client_id, mqtt.heartbeat_ms)
    return MqttSinkSettings(broker, mqtt.qos, mqtt.notifications_topic, mqtt.dead_letters_topic)
