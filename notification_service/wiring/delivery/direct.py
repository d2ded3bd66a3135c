"""Makes receivers that are delivered to straight from topics."""

from collections.abc import Mapping, Sequence
from functools import partial
from time import sleep
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec.structs import replace

from notification_service.configuration.configuration import Configuration
from notification_service.configuration.transports import kafka_settings
from notification_service.connectors.dead_letters.port import AskedFor, Sign
from notification_service.delivery.caller import Network
from notification_service.delivery.direct.core.decision import Stage, find_left_group, stages_of, topics_to_make
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOutcome
from notification_service.delivery.direct.owned import StageClients
from notification_service.delivery.direct.receiver import DirectReceiver
from notification_service.delivery.errors import ReceiverUnknown
from notification_service.delivery.settings import Receiver
from notification_service.supervision.system_clock import SystemClock
from resequencer.clock import SteadyClock
from resequencer.record import OutputNumber, Partition

if TYPE_CHECKING:  # Kafka's client takes a third of a second to import.
    from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
    from notification_service.connectors.kafka.settings import KafkaSettings
    from notification_service.delivery.direct.order_topic import OrderTopic

_HEADERS_BYTES = 64 << 10


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
    # What is read leaves again: with more headers, as a moved record or a dead letter.
    largest = max(settings.max_request_bytes, settings.max_value_bytes + _HEADERS_BYTES)
    return replace(
        settings,
        topics=stage.topics,
        consumer={**consumer, "group_id": stage.group},
        producer={**settings.producer, "max_request_size": largest, "transactional_id": f"{stage.group}.{member}"},
        begins_at_earliest=True,
    )


def make_direct_receiver(
    configuration: Configuration,
    name: str,
    receiver: Receiver,
    slot: int | None,
    forbidden: Sequence[Network],
    clock: SteadyClock,
) -> DirectReceiver:
    """Return the receiver; nothing is connected yet."""
    stages = stages_of_receiver(configuration, name, receiver)
    clients = partial(_clients_of, configuration, slot)
    return DirectReceiver(name, receiver, stages, partial(_make_topics, configuration, stages), clients, clock, forbidden)


def _clients_of(configuration: Configuration, slot: int | None, stage: Stage) -> StageClients:
    from notification_service.connectors.kafka.orders import KafkaOrderSource
    from notification_service.connectors.kafka.sink import KafkaTransport

    settings = settings_of_stage(configuration, stage, slot)
    orders = KafkaOrderSource(settings) if stage.orders else None
    return StageClients(KafkaTransport(settings, SystemClock()), orders, settings.session_timeout_ms)


def _make_topics(configuration: Configuration, stages: Sequence[Stage]) -> Mapping[str, str]:
    """Make the topics; return the retry topics of earlier intervals that are not read up to their ends, with their groups."""
    from notification_service.connectors.kafka.preflight import find_unread
    from notification_service.connectors.kafka.topics import make_topics

    settings = kafka_settings(configuration)
    make_topics(settings, stages[0].topic, topics_to_make(stages))
    return find_unread(settings, partial(find_left_group, stages))


def _open_order_topic(configuration: Configuration, name: str) -> "OrderTopic":
    """Return where orders for a receiver's partitions are given.

    Raises:
        ReceiverUnknown: There is no such receiver.
    """
    from notification_service.delivery.direct.order_topic import OrderTopic

    return OrderTopic(settings_of_stage(configuration, _source_of(configuration, name), None))


def order_delivery(
    configuration: Configuration, name: str, partition: Partition, order: DirectOrder, seconds: float
) -> DirectOutcome | None:
    """Give an order for a partition of a receiver, and return its outcome; None if it has none after so many seconds.

    Raises:
        ReceiverUnknown: There is no such receiver.
        OrderRefused: The source has no such partition.
        TransportUnavailable, TransportRefused: It is not known whether the order was given.
    """
    topic = _open_order_topic(configuration, name)
    return topic.wait_for_outcome(partition, order, topic.give(partition, order), seconds, sleep)


def open_dead_letters(configuration: Configuration, name: str, asked_for: AskedFor, sign: Sign) -> "KafkaDeadLetterStore":
    """Open the dead letters of a receiver; nothing is written.

    Raises:
        ReceiverUnknown: There is no such receiver.
    """
    from notification_service.connectors.kafka.dead_letters import KafkaDeadLetterStore
    from notification_service.delivery.direct.requeue import requeue_route

    source = _source_of(configuration, name)
    route = requeue_route(source.topic, source.group, SystemClock())
    return KafkaDeadLetterStore(settings_of_stage(configuration, source, None), asked_for, sign, route)


def find_receiver_of(configuration: Configuration, dead_letter: str) -> str | None:
    """Return the receiver of a dead letter with this number; None if it is the service's own."""
    number = OutputNumber.find(dead_letter)
    for name, receiver in configuration.delivery.of_topics:
        if number and stages_of_receiver(configuration, name, receiver)[0].dead_letters == number.partition.topic:
            return name
    return None


def _source_of(configuration: Configuration, name: str) -> Stage:
    receivers = dict(configuration.delivery.of_topics)
    if name not in receivers:
        raise ReceiverUnknown(name, receivers)
    return stages_of_receiver(configuration, name, receivers[name])[0]
