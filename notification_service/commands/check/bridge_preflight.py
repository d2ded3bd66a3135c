"""Checks what the bridge will need, without a change. A client is imported where it is needed: it may not be installed."""

from notification_service.bridge.settings import SourceKind, StartKind
from notification_service.configuration.bridge_settings import mqtt_source_settings, xms_source_settings
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kafka_settings import kafka_source_settings


def bridge_is_usable(configuration: Configuration) -> None:
    """Check the broker of the bridge's source, the login, and the right to its topics or its queue. No message is taken.

    The session of a bridge that runs is left alone.

    Raises:
        TransportUnavailable, TransportRefused: As the bridge would meet them.
    """
    if not configuration.bridge.is_enabled:
        return
    if configuration.bridge.source is SourceKind.MQTT:
        from notification_service.connectors.mqtt.preflight import preflight_source

        preflight_source(mqtt_source_settings(configuration))
    else:
        from notification_service.connectors.jms.preflight import preflight_queue

        settings = xms_source_settings(configuration)
        preflight_queue(settings.broker, settings.queue)


def start_is_usable(configuration: Configuration) -> None:
    """Check the topic to which the bridge appends, and the right to write it. The directory of files is among the directories.

    Raises:
        ExceptionGroup: The topic or the right is missing; it holds one TransportWithheld.
        TransportUnavailable, TransportRefused: As the bridge would meet them.
    """
    bridge = configuration.bridge
    if bridge.is_enabled and bridge.start is StartKind.KAFKA:
        from notification_service.connectors.kafka.preflight import preflight_start

        preflight_start(kafka_source_settings(configuration))
