"""Makes receivers that are delivered to straight from topics."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec.structs import replace

from daemon.configuration.configuration import Configuration
from daemon.configuration.kafka_settings import kafka_settings
from daemon.system_clock import SystemClock
from delivery.caller import Network
from delivery.direct.consumer import StageClients
from delivery.direct.receiver import DirectReceiver
from delivery.direct.stages import Stage, stages_of, topics_to_make
from delivery.errors import OrderRefused
from delivery.settings import Receiver

if TYPE_CHECKING:  # Kafka's client takes a third of a second to import.
    from connectors.kafka.settings import KafkaSettings
    from delivery.direct.order_topic import OrderTopic


def stages_of_receiver(configuration: Configuration, name: str, receiver: Receiver) -> tuple[Stage, ...]:
    """Return the stages of a receiver, with the names of its topics and groups."""
    group = receiver.group or f"{configuration.storage.namespace}-{name}"
    return stages_of(receiver, receiver.topic or configuration.notification.topic, group)


def settings_of_stage(configuration: Configuration, stage: Stage, slot: int | None) -> "KafkaSettings":
    """Return the settings to read the stage's topic. Without a slot the transactional id is a new one."""
    settings = kafka_settings(configuration, slot or 0)
    service = settings.transactional_id.split(".")[-2]
    consumer = {name: value for name, value in settings.consumer.items() if name != "group_instance_id"}
    member = uuid4().hex if slot is None else f"{service}.{slot}"
    return replace(
        settings,
        topics=stage.topics,
        consumer={**consumer, "group_id": stage.group},
        producer={**settings.producer, "transactional_id": f"{stage.group}.{member}"},
        begins_at_earliest=True,
    )


def make_direct_receiver(
    configuration: Configuration, name: str, receiver: Receiver, slot: int | None, forbidden: Sequence[Network]
) -> DirectReceiver:
    """Return the receiver; nothing is connected yet."""
    stages = stages_of_receiver(configuration, name, receiver)
    clients = partial(_clients_of, configuration, slot)
    clock = SystemClock()
    return DirectReceiver(name, receiver, stages, partial(_make_topics, configuration, stages), clients, clock, forbidden)


def _clients_of(configuration: Configuration, slot: int | None, stage: Stage) -> StageClients:
    from connectors.kafka.orders import KafkaOrderSource
    from connectors.kafka.transport import KafkaTransport

    settings = settings_of_stage(configuration, stage, slot)
    return StageClients(KafkaTransport(settings, SystemClock()), KafkaOrderSource(settings) if stage.orders else None)


def _make_topics(configuration: Configuration, stages: Sequence[Stage]) -> None:
    from connectors.kafka.made_topics import make_topics

    make_topics(kafka_settings(configuration), stages[0].topic, topics_to_make(stages))


def open_order_topic(configuration: Configuration, name: str) -> "OrderTopic":
    """Return where orders for a receiver's partitions are given.

    Raises:
        OrderRefused: There is no such receiver, or it has no orders.
    """
    from delivery.direct.order_topic import OrderTopic

    receivers = dict(configuration.delivery.of_topics)
    if name not in receivers:
        known = ", ".join(receivers) or "none"
        raise OrderRefused(f"no receiver {name} is delivered to straight from a topic; known are: {known}")
    source = stages_of_receiver(configuration, name, receivers[name])[0]
    return OrderTopic(settings_of_stage(configuration, source, None))
