"""Sources, sinks and the bridge of a configuration: which kinds there are, and the settings of each, made of their sections.

No function connects or creates anything.
"""

import platform
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from notification_service.aggregation.settings import PAYMENTS
from notification_service.configuration.configuration import Configuration
from notification_service.configuration.schema import path_of
from notification_service.configuration.sections import Ingress, Notifications, TransportType
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.jms.settings import JmsSinkSettings, JmsSourceSettings, XmsSinkSettings, XmsSourceSettings
from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.mqtt.settings import MqttSinkSettings, MqttSourceSettings
from resequencer.errors import ConfigurationError

if TYPE_CHECKING:  # Kafka's client takes a third of a second to import.
    from notification_service.connectors.kafka.settings import KafkaSettings


def sinks_of(configuration: Configuration) -> tuple[TransportType, ...]:
    """Return the kinds of all sinks; the first takes everything, the others the notifications."""
    notification = configuration.notification
    return (notification.transport, *map(TransportType, notification.further_transports))


def is_region(configuration: Configuration) -> bool:
    """Return whether source and sinks are not one transport: docs/regions.md."""
    source = configuration.ingress.transport
    is_fixed = bool(configuration.ingress.kafka_partitions)
    return sinks_of(configuration) != (source,) or source is TransportType.JMS or is_fixed


def max_of_interval(configuration: Configuration) -> int:
    """Return the most records of a cycle."""
    count = configuration.region.trigger_count if is_region(configuration) else None
    return configuration.ingress.batch_size if count is None else count


def only_with_files(configuration: Configuration, command: str) -> ConfigurationError | None:
    """Return the text of a refusal: this command works on files only."""
    source, sinks = configuration.ingress.transport, sinks_of(configuration)
    if source is not TransportType.FILE:
        why = "brokers remove old records of a topic by its retention"
        why = "a broker removes a message once it is acknowledged" if source is TransportType.JMS else why
        return ConfigurationError(path_of(Ingress, "transport"), f"{source}: `{command}` works on files; {why}")
    if is_region(configuration):
        text = f"{', '.join(sinks)}: `{command}` needs files as the only sink: only they tell what has left"
        return ConfigurationError(path_of(Notifications, "transport"), text)
    return None


def only_with_one_kind(configuration: Configuration, command: str) -> ConfigurationError | None:
    """Return the text of a refusal: this command needs input and first sink of one kind, both topics or both files."""
    source, sink = configuration.ingress.transport, configuration.notification.transport
    if source is sink and source is not TransportType.JMS:
        return None
    text = f"{sink}, with the input {source}: `{command}` needs both to be kafka, or both to be file"
    return ConfigurationError(path_of(Notifications, "transport"), text)


def file_settings(configuration: Configuration) -> FileSettings:
    """Return directories, limits and rotation; nothing is created. Facts and outcomes of orders go to the first sink alone."""
    ingress, notification, aggregation = configuration.ingress, configuration.notification, configuration.aggregation
    is_first = notification.transport is TransportType.FILE
    return FileSettings(
        ingress.topic,
        ingress.file_directory,
        notification.output_directory,
        ingress.max_record_bytes,
        rotate_bytes=notification.rotate_bytes,
        notifications_kept=notification.notifications_kept,
        has_orders=configuration.orders.is_enabled and is_first,
        facts_directory=aggregation.facts_directory if configuration.counts_payments and is_first else None,
    )


def kafka_settings(configuration: Configuration, slot: int = 0) -> "KafkaSettings":
    """Return topics, options and identity of the worker in this slot; no connection is made."""
    from notification_service.connectors.kafka.settings import KafkaSettings

    ingress, notification = configuration.ingress, configuration.notification
    options, _, _ = read_options(dict(ingress.kafka_clients), dict(notification.kafka_clients))
    consumer = dict(options.consumer)
    consumer.setdefault("client_id", options.producer.get("client_id"))
    if "group_instance_id" in consumer:
        consumer["group_instance_id"] = f"{consumer['group_instance_id']}-{slot}"
    topics = KafkaTopics(ingress.topic, notification.topic, notification.dead_letters_topic)
    orders = configuration.orders
    if orders.is_enabled:
        topics = replace(topics, orders=orders.topic, order_outcomes=orders.outcomes_topic)
    if configuration.counts_payments:
        topics = replace(topics, facts=configuration.aggregation.facts_topic)
    transactional_id = f"{consumer['group_id']}.{_service_id(configuration)}.{slot}"
    return KafkaSettings.make(topics, options._replace(consumer=consumer), transactional_id, ingress.max_record_bytes)


def kafka_source_settings(configuration: Configuration, slot: int = 0) -> "KafkaSettings":
    """Return the settings of a source whose sinks are apart: with the input topic alone, for which alone it needs rights.

    The slots share the fixed partitions out by their place in the list.
    """
    settings, ingress = kafka_settings(configuration, slot), configuration.ingress
    settings = replace(settings, topics=KafkaTopics(*[ingress.topic] * 3))
    if not ingress.kafka_partitions:
        return settings
    fixed = ingress.kafka_partitions[slot :: configuration.worker_count]
    return replace(settings, partitions=fixed)


def kafka_sink_settings(configuration: Configuration) -> "KafkaSettings":
    """Return the settings of a sink of any source. Its input is the markers' topic.

    A further sink takes the notifications alone; those that are too large become dead letters. The transactional ids begin with
    the group and the namespace: whichever worker has a partition has the partition's id.
    """
    settings, notification = kafka_settings(configuration), configuration.notification
    topics = replace(settings.topics, input=notification.markers_topic, orders="")
    if notification.transport is not TransportType.KAFKA:
        topics = replace(topics, order_outcomes="", facts="")
    settings = replace(settings, topics=topics)
    return settings.with_id(f"{settings.group_id}.{configuration.storage.namespace}.sink")


def copied_settings(configuration: Configuration) -> "KafkaSettings":
    """Return the settings of a program that copies or judges all that the service writes: with the topic of the group reports."""
    settings = kafka_settings(configuration)
    if not configuration.counts_payments:
        return settings
    return replace(settings, topics=replace(settings.topics, reports=configuration.aggregation.reports_topic))


def facts_group(configuration: Configuration) -> str:
    """Return the consumer group that counts the facts; empty without facts."""
    return f"{configuration.storage.namespace}-{PAYMENTS}" if configuration.counts_payments else ""


def _service_id(configuration: Configuration) -> str:
    """Return an id that is the same after each start and differs between services, because one service at a time uses a run
    directory.
    """
    place = f"{platform.node()}:{configuration.notification.run_directory.absolute()}"
    return sha256(place.encode()).hexdigest()[:12]


def jms_source_settings(configuration: Configuration, slot: int | None = None) -> JmsSourceSettings:
    """Return broker, partitions and window of the worker in this slot; no connection is made.

    The slots share the partitions out by their numbers; None has all of them.
    """
    ingress = configuration.ingress
    slots = {} if slot is None else {"slot": slot, "slots": configuration.worker_count}
    return replace(ingress.jms, window=max_of_interval(configuration), max_value_bytes=ingress.max_record_bytes, **slots)


def jms_sink_settings(configuration: Configuration) -> JmsSinkSettings:
    """Return broker and queues; no connection is made. The heartbeat is the source's."""
    return replace(configuration.notification.jms, heartbeat_ms=configuration.ingress.jms.heartbeat_ms)


def xms_sink_settings(configuration: Configuration) -> XmsSinkSettings:
    """Return broker and queues; no connection is made. The heartbeat is that of a JMS source."""
    return replace(configuration.notification.xms, heartbeat_ms=configuration.ingress.jms.heartbeat_ms)


def mqtt_sink_settings(configuration: Configuration, slot: int | None = None) -> MqttSinkSettings:
    """Return broker and topics of the worker in this slot; None: of a command. No connection is made.

    Each has a client id of its own: a broker ends the connection of an earlier client with the same one.
    """
    mqtt = configuration.notification.mqtt
    suffix = "check" if slot is None else str(slot)
    return replace(mqtt, client_id=None if mqtt.client_id is None else f"{mqtt.client_id}-{suffix}")


def mqtt_source_settings(configuration: Configuration) -> MqttSourceSettings:
    """Return broker, session and topics; no connection is made."""
    mqtt = configuration.bridge.mqtt
    return replace(mqtt, client_id=mqtt.client_id or f"{configuration.storage.namespace}-bridge")


def xms_source_settings(configuration: Configuration) -> XmsSourceSettings:
    """Return broker and queue; no connection is made."""
    return replace(configuration.bridge.xms, max_value_bytes=configuration.ingress.max_record_bytes)
