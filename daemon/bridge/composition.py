"""Makes the bridge from the configuration, and what it reports by."""

import os
from collections.abc import Callable

from bridge.port import BridgeSource, Start
from bridge.runner import Bridge
from bridge.runner import BridgeReport as Running
from bridge.settings import SourceKind, StartKind
from daemon.configuration.bridge_settings import mqtt_source_settings, xms_source_settings
from daemon.configuration.configuration import Configuration
from daemon.configuration.kafka_settings import kafka_source_settings
from daemon.supervision.stop_signal import StopSignal
from daemon.system_clock import SystemClock
from domain.clock import instant_text
from domain.printable import without_secrets
from status.bridge import BridgeFile, BridgeReport


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
        from connectors.mqtt.client import connect  # Imported here: its client may not be installed.
        from connectors.mqtt.source import MqttSource

        return lambda: MqttSource(mqtt_source_settings(configuration), connect)
    from connectors.jms.xms_source import XmsSource

    return lambda: XmsSource(xms_source_settings(configuration))


def _start_of(configuration: Configuration) -> Callable[[], Start]:
    if configuration.bridge.start is StartKind.KAFKA:
        from bridge.kafka_start import KafkaStart  # Imported here, which takes a third of a second.

        return lambda: KafkaStart(kafka_source_settings(configuration))
    from bridge.file_start import FileStart
    from connectors.files.operations import SystemFiles

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
