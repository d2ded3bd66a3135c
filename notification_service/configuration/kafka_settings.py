"""Makes the settings of the Kafka transport from the configuration."""

import platform
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec.structs import replace

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.receiver_constraints import PAYMENTS
from notification_service.configuration.sections import TransportType
from notification_service.connectors.kafka.core.client_options import read_options

if TYPE_CHECKING:  # Kafka's client takes a third of a second to import.
    from notification_service.connectors.kafka.settings import KafkaSettings


def kafka_settings(configuration: Configuration, slot: int = 0) -> "KafkaSettings":
    """Return topics, options and identity of the worker in this slot; no connection is made."""
    from notification_service.connectors.kafka.core.client_options import KafkaTopics
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
    if configuration.aggregation.is_enabled:
        topics = replace(topics, facts=configuration.aggregation.facts_topic)
    transactional_id = f"{consumer['group_id']}.{_service_id(configuration)}.{slot}"
    return KafkaSettings.make(topics, options._replace(consumer=consumer), transactional_id, ingress.max_record_bytes)


def kafka_source_settings(configuration: Configuration, slot: int = 0) -> "KafkaSettings":
    """Return the settings of a source whose sinks are apart: with the input topic alone, for which alone it needs rights.

    The slots share the fixed partitions out by their place in the list.
    """
    from notification_service.connectors.kafka.core.client_options import KafkaTopics

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
    settings, aggregation = kafka_settings(configuration), configuration.aggregation
    if not aggregation.is_enabled:
        return settings
    return replace(settings, topics=replace(settings.topics, reports=aggregation.reports_topic))


def facts_group(configuration: Configuration) -> str:
    """Return the consumer group that counts the facts; empty without aggregation."""
    return f"{configuration.storage.namespace}-{PAYMENTS}" if configuration.aggregation.is_enabled else ""


def _service_id(configuration: Configuration) -> str:
    """Return an id that is the same after each start and differs between services, because one service at a time uses a run
    directory.
    """
    place = f"{platform.node()}:{configuration.notification.run_directory.absolute()}"
    return sha256(place.encode()).hexdigest()[:12]
