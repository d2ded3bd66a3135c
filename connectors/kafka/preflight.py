"""A look at the brokers as the service would have it, which changes nothing: no group is joined, nobody is fenced."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic, sleep

from kafka import errors

from connectors.kafka.errors import LOGIN
from connectors.kafka.input_topic import Input
from connectors.kafka.offsets import LogReader
from connectors.kafka.settings import KafkaSettings
from connectors.kafka.topics import Topics
from connectors.port import NotLetIn, TransportUnavailable, TransportWithheld
from domain.record import Partition

_GRACE_SECONDS = 1
"""A topic that was just made may not be known yet."""
_LOOK_SECONDS = 0.2


def preflight(settings: KafkaSettings) -> Sequence[str]:
    """What the user should know, a sentence each.

    Raises:
        ExceptionGroup: With all of the topics and rights that are withheld, a TransportWithheld each.
        TransportUnavailable, TransportRefused: As the service would meet them.
    """
    topics, log = Topics(settings), LogReader(settings)
    try:
        return _preflight(topics, log, settings)
    except NotLetIn as error:
        if not str(settings.consumer.get("security_protocol", "")).startswith("SASL"):
            raise
        # Who is just starting need not take that for a broker that is about to come back.
        raise TransportWithheld("the brokers", f"they hang up, as on a wrong login. Check {LOGIN}") from error
    finally:
        log.close()
        topics.close()


def _preflight(topics: Topics, log: LogReader, settings: KafkaSettings) -> Sequence[str]:
    withheld = _find_withheld(topics, log, settings)
    if withheld:
        raise ExceptionGroup("withheld", withheld)
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


def _find_withheld(topics: Topics, log: LogReader, settings: KafkaSettings) -> list[TransportWithheld]:
    until = monotonic() + _GRACE_SECONDS
    while (found := topics.find_withheld()) and monotonic() < until:
        sleep(_LOOK_SECONDS)
    return [*found, *_group_withheld(log, settings), *_transactions_withheld(topics)]


def _group_withheld(log: LogReader, settings: KafkaSettings) -> Iterator[TransportWithheld]:
    try:
        log.position(Partition(settings.topics.input, 0), None)
    except TransportWithheld as error:
        if isinstance(error.__cause__, errors.GroupAuthorizationFailedError):
            yield error
    except TransportUnavailable:
        pass  # It may be undecided, or the topic is not there: of the group nothing is known.


def _transactions_withheld(topics: Topics) -> Iterator[TransportWithheld]:
    try:
        topics.check_transactions()
    except TransportWithheld as error:
        yield error
