"""Makes the bridge from the configuration, and what it reports by."""

import os
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from guardian.backoff import RetryWithBackoff
from notification_service.bridge.runner import Bridge, BridgeSource, Start
from notification_service.bridge.runner import BridgeReport as Running
from notification_service.bridge.settings import SourceKind, StartKind, keyed_by, with_key
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.transports import kafka_source_settings, mqtt_source_settings, xms_source_settings
from notification_service.connectors.line_format import partition_of
from notification_service.events.format import DecodingSettings
from notification_service.events.settings import find_decoder
from notification_service.simulator.generate.input import Input
from notification_service.status.aggregation import BridgeReport, bridge_file
from notification_service.supervision.stop_signal import StopSignal
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import instant_text
from resequencer.printable import without_secrets

_ANY_SIZE = 2**62
"""What is too large for the service gets its key, too."""


def make_bridge(configuration: Configuration, stop: StopSignal) -> Bridge:
    """Return the bridge; nothing is connected yet."""
    decoder = find_decoder(configuration.ingress.events, DecodingSettings(needs_sequence=False, max_value_bytes=_ANY_SIZE))
    keyed = with_key if decoder is None else keyed_by(decoder)
    return Bridge(_source_of(configuration), _start_of(configuration), stop.wait, keyed)


def make_report(configuration: Configuration) -> Callable[[Running], None]:
    """Return what the bridge reports by."""
    file, clock = bridge_file(configuration.notification.run_directory), SystemClock()
    source, start = _named_source(configuration), _named_start(configuration)

    def report(running: Running) -> None:
        now = instant_text(clock.now())
        counts = running.appended, running.waiting, running.notes
        file.write(BridgeReport(os.getppid(), os.getpid(), now, running.problem, source, start, *counts))

    return report


def _source_of(configuration: Configuration) -> Callable[[], BridgeSource]:
    if configuration.bridge.source is SourceKind.MQTT:
        from notification_service.connectors.mqtt.source import MqttSource

        return lambda: MqttSource(mqtt_source_settings(configuration))
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


def open_bridged_input(configuration: Configuration, retry: RetryWithBackoff) -> Input:
    """Open what sends to the source of the bridge."""
    partitioner = _partitioner(configuration)
    if configuration.bridge.source is SourceKind.MQTT:
        from notification_service.simulator.generate.mqtt_input import MqttInput

        return MqttInput(mqtt_source_settings(configuration), partitioner, retry)
    from notification_service.simulator.generate.jms_input import XmsInput

    return XmsInput(xms_source_settings(configuration), partitioner, retry)


def _partitioner(configuration: Configuration) -> Callable[[bytes], int]:
    """Return the partitioner of the bridge's start."""
    if configuration.bridge.start is StartKind.FILE:
        return partial(_of_file, configuration.ingress.file_directory)
    from notification_service.connectors.kafka.producer import partition_of as partition_of_key
    from notification_service.connectors.kafka.topics import Topics

    with closing(Topics(kafka_source_settings(configuration).without_facts())) as topics:
        count = topics.look().partitions
    return lambda key: partition_of_key(key, count)


def _of_file(directory: Path, key: bytes) -> int:
    return partition_of(key, max(1, len([*directory.glob("partition-*.jsonl")])))
