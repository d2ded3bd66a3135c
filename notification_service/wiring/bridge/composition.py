"""Makes the bridge from the configuration, and what it reports by."""

import os
from collections.abc import Callable

from notification_service.bridge.port import BridgeSource, Start
from notification_service.bridge.runner import Bridge
from notification_service.bridge.runner import BridgeReport as Running
from notification_service.bridge.settings import SourceKind, StartKind
from notification_service.configuration.bridge_settings import mqtt_source_settings, xms_source_settings
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kafka_settings import kafka_source_settings
from notification_service.status.bridge import BridgeFile, BridgeReport
from notification_service.supervision.stop_signal import StopSignal
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import instant_text
from resequencer.printable import without_secrets


def make_bridge(configuration: Configuration, stop: StopSignal) -> Bridge:
    """Return the bridge; nothing is connected yet."""
    return Bridge(_source_of(configuration), _start_of(configuration), stop.wait)


def make_report(configuration: Configuration) -> Callable[[Running], None]:
    """Return what the bridge reports by."""
    file, clock = BridgeFile(configuration.notification.run_directory), SystemClock()
    source, start = _named_source(configuration), _named_start(configuration)

    def report(told: Running) -> None:
        now = instant_text(clock.now())
        counts = told.appended, told.waiting, told.notes
        file.write(BridgeReport(os.getppid(), os.getpid(), now, told.problem, source, start, *counts))

    return report


def _source_of(configuration: Configuration) -> Callable[[], BridgeSource]:
    if configuration.bridge.source is SourceKind.MQTT:
        from notification_service.connectors.mqtt.client import connect  # Imported here: its client may not be installed.
        from notification_service.connectors.mqtt.source import MqttSource

        return lambda: MqttSource(mqtt_source_settings(configuration), connect)
    from notification_service.connectors.jms.xms_source import XmsSource

    return lambda: XmsSource(xms_source_settings(configuration))


def _start_of(configuration: Configuration) -> Callable[[], Start]:
    if configuration.bridge.start is StartKind.KAFKA:
        from notification_service.bridge.kafka_start import KafkaStart  # Imported here, which takes a third of a second.

        return lambda: KafkaStart(kafka_source_settings(configuration))
    from notification_service.bridge.file_start import FileStart
    from notification_service.connectors.files.operations import SystemFiles

    return lambda: FileStart(configuration.ingress.file_directory, SystemFiles())


def _named_source(configuration: Configuration) -> str:
    bridge = configuration.bridge
    if bridge.source is SourceKind.MQTT:
        return f"{without_secrets(bridge.mqtt.url)} {', '.join(bridge.mqtt.topics)}"
    return f"{without_secrets(bridge.xms.url)} queue {bridge.xms.queue}"


def _named_start(configuration: Configuration) -> str:
    ingress = configuration.ingress
    is_topic = configuration.bridge.start is StartKind.KAFKA
    return f"topic {ingress.topic}" if is_topic else f"files in {ingress.file_directory}"
