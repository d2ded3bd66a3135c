"""Checks the brokers for what the service will need. It changes nothing: it joins no group and fences no worker."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from time import monotonic, sleep

from kafka import errors
from msgspec.structs import replace

from guardian.ports import NotLetIn, TransportUnavailable, TransportWithheld
from notification_service.connectors.kafka.core.topic_names import KafkaTopics
from notification_service.connectors.kafka.errors import LOGIN
from notification_service.connectors.kafka.input_topic import Input
from notification_service.connectors.kafka.offsets import LogReader
from notification_service.connectors.kafka.region.markers import loses_markers
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Right, Topics
from resequencer.record import Partition

_GRACE_SECONDS = 1
"""How long a missing topic is tolerated: the brokers may not know a topic yet that was just created."""
_LOOK_SECONDS = 0.2


def preflight(settings: KafkaSettings) -> Sequence[str]:
    """Check topics, rights and positions; return notes for the operator, one sentence each.

    Raises:
        ExceptionGroup: Topics or rights are missing; it holds one TransportWithheld for each.
        TransportUnavailable, TransportRefused: As the service itself would raise them.
    """
    topics, log = Topics(settings), LogReader(settings)
    try:
        return _preflight(topics, log, settings)
    except NotLetIn as error:
        if not str(settings.consumer.get("security_protocol", "")).startswith("SASL"):
            raise
        # At a start a wrong login is more likely than a broker that is just restarting.
        raise TransportWithheld("the brokers", f"they close the connection, as on a wrong login. Check {LOGIN}") from error
    finally:
        log.close()
        topics.close()


def preflight_topics(settings: KafkaSettings, used: Iterable[tuple[str, str]]) -> None:
    """Check that these topics exist, and that the user may read the first of each pair and write the second.

    Raises as `preflight` does; what is missing of several is in one group.
    """
    withheld: dict[str, TransportWithheld] = {}
    for read, written in used:
        with closing(Topics(replace(settings, topics=KafkaTopics(read, written, written)))) as topics:
            withheld |= {str(each): each for each in _topics_withheld(topics)}
    if withheld:
        raise ExceptionGroup("withheld", list(withheld.values()))


def preflight_start(settings: KafkaSettings) -> None:
    """Check that the input topic exists, and that the user may write it. Raises: as `preflight`."""
    with closing(Topics(settings, of_input=Right.WRITE)) as topics:
        if withheld := _topics_withheld(topics):
            raise ExceptionGroup("withheld", withheld)


def preflight_sink(settings: KafkaSettings) -> None:
    """Check topics and rights of a sink that is no transport (notification_service/connectors/kafka/sink.py), which makes the
    topic of its markers.

    The outputs must be readable, too: `verify` and delivery read them.

    Raises as `preflight` does; what is missing of several is in one group.
    """
    markers, outputs = settings.topics.input, settings.topics.all[1:]
    with closing(Topics(replace(settings, topics=KafkaTopics(markers, markers, markers)))) as topics:
        is_made = topics.is_there(markers)
        withheld = [*transactions_withheld(topics), *(_topics_withheld(topics) if is_made else ())]
        policy = topics.find_setting(markers, "cleanup.policy") if is_made else None
    if (problem := loses_markers(markers, policy)) is not None:
        withheld.append(problem)
    try:
        preflight_topics(settings, [(each, each) for each in outputs])
    except ExceptionGroup as error:
        withheld += error.exceptions
    if withheld:
        raise ExceptionGroup("withheld", withheld)


def _preflight(topics: Topics, log: LogReader, settings: KafkaSettings) -> Sequence[str]:
    withheld = _find_withheld(topics, settings)
    if withheld:
        raise ExceptionGroup("withheld", withheld)
    topic = Input(settings, topics)
    topic.connect()
    partitions = [Partition(settings.topics.input, number) for number in range(topic.look().partitions)]
    log.ends(partitions)
    for each in partitions:
        with suppress(TransportUnavailable):  # A running worker is about to commit the position.
            position = log.position(each, None)
            if position is not None:
                topic.position(each, position)
    return topic.notes


def _find_withheld(topics: Topics, settings: KafkaSettings) -> list[TransportWithheld]:
    return [*_topics_withheld(topics), *group_withheld(settings), *transactions_withheld(topics)]


def _topics_withheld(topics: Topics) -> list[TransportWithheld]:
    until = monotonic() + _GRACE_SECONDS
    while (found := topics.find_withheld()) and monotonic() < until:
        sleep(_LOOK_SECONDS)
    return found


def group_withheld(settings: KafkaSettings) -> Iterator[TransportWithheld]:
    """Yield an error if the right on the group is missing."""
    # The first answer of a client takes longer than those that a worker waits for. It is asked for one partition, not for all.
    patient = replace(settings, undecided_wait_ms=settings.call_timeout_ms)
    try:
        with closing(LogReader(patient)) as log:
            log.position(Partition(settings.topics.input, 0), None)
    except TransportWithheld as error:
        if isinstance(error.__cause__, errors.GroupAuthorizationFailedError):
            yield error
    except TransportUnavailable:
        pass  # The position is undecided, or the topic is missing; neither shows a missing right on the group.


def transactions_withheld(topics: Topics) -> Iterator[TransportWithheld]:
    """Yield an error if the right on the transactional id is missing."""
    try:
        topics.check_transactions()
    except TransportWithheld as error:
        yield error
