"""Makes the settings of the bridge's sources from the configuration."""

from notification_service.configuration.configuration import Configuration
from notification_service.connectors.jms.settings import BrokerSettings as AmqpBroker
from notification_service.connectors.jms.xms_source import XmsSourceSettings
from notification_service.connectors.mqtt.settings import BrokerSettings as MqttBroker
from notification_service.connectors.mqtt.source import MqttSourceSettings


def mqtt_source_settings(configuration: Configuration) -> MqttSourceSettings:
    """Return broker, session and topics; no connection is made."""
    mqtt = configuration.bridge.mqtt
    client_id = mqtt.client_id or f"{configuration.storage.namespace}-bridge"
    broker = MqttBroker(mqtt.url, mqtt.user, mqtt.password, client_id)
    return MqttSourceSettings(broker, mqtt.topics, mqtt.qos, mqtt.session_expiry_ms, mqtt.queue_size)


def xms_source_settings(configuration: Configuration) -> XmsSourceSettings:
    """Return broker and queue; no connection is made."""
    xms = configuration.bridge.xms
    largest = configuration.ingress.max_record_bytes
    return XmsSourceSettings(AmqpBroker(xms.url, xms.user, xms.password), xms.queue, max_value_bytes=largest)
