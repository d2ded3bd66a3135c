"""A look at the brokers as the service would have it, which changes nothing: no group is joined, nobody is fenced."""

from collections.abc import Sequence
from contextlib import suppress

from connectors.kafka_input import Input
from connectors.kafka_log import LogReader
from connectors.kafka_settings import KafkaSettings
from connectors.kafka_topics import Topics
from connectors.port import TransportUnavailable
from domain.record import Partition


def inspect(settings: KafkaSettings) -> Sequence[str]:
    """What the user should know, a sentence each.

    Raises:
        TransportUnavailable, TransportRefused: As the service would meet them.
    """
    topics, log = Topics(settings), LogReader(settings)
    try:
        topic = Input(settings, topics)
        topic.connect()
        partitions = [Partition(settings.topics.input, number) for number in range(topic.look().partitions)]
        log.ends(partitions)
        for each in partitions:
            with suppress(TransportUnavailable):  # A running worker is just about to move it.
                position = log.position(each, None)
                if position is not None:
                    topic.position(each, position)
        return topic.notes
    finally:
        log.close()
        topics.close()
