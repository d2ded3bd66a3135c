"""Makes the simulator's input in front of the bridge."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from guardian.backoff import RetryWithBackoff
from notification_service.bridge.settings import SourceKind, StartKind
from notification_service.configuration.bridge_settings import mqtt_source_settings, xms_source_settings
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.kafka_settings import kafka_source_settings
from notification_service.connectors.line_format import partition_of
from notification_service.simulator.generate.input import Input


def open_bridged_input(configuration: Configuration, retry: RetryWithBackoff) -> Input:
    """Open what sends to the source of the bridge."""
    partitioner = _partitioner(configuration)
    if configuration.bridge.source is SourceKind.MQTT:
        from notification_service.simulator.generate.mqtt_input import MqttInput

        return MqttInput(mqtt_source_settings(configuration), partitioner, retry)
    from notification_service.simulator.generate.xms_input import XmsInput

    return XmsInput(xms_source_settings(configuration), partitioner, retry)


def _partitioner(configuration: Configuration) -> Callable[[bytes], int]:
    """Return the partitioner of the bridge's start."""
    if configuration.bridge.start is StartKind.FILE:
        return partial(_of_file, configuration.ingress.file_directory)
    from notification_service.connectors.kafka.quick_producer import partition_of as partition_of_key
    from notification_service.connectors.kafka.topics import Topics

    with closing(Topics(kafka_source_settings(configuration).without_facts())) as topics:
        count = topics.look().partitions
    return lambda key: partition_of_key(key, count)


def _of_file(directory: Path, key: bytes) -> int:
    return partition_of(key, max(1, len([*directory.glob("partition-*.jsonl")])))
