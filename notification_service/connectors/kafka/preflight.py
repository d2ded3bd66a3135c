"""Checks the brokers for what the service will need. It changes nothing: it joins no group and fences no worker."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from time import monotonic, sleep

from kafka import KafkaAdminClient, TopicPartition, errors
from kafka.admin import OffsetSpec
from msgspec.structs import replace

from guardian.ports import NotLetIn, TransportUnavailable, TransportWithheld
from notification_service.connectors.kafka.client import LOGIN, translated
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.input_topic import Input
from notification_service.connectors.kafka.log_reader import LogReader
from notification_service.connectors.kafka.region import loses_markers
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Right, Topics, open_admin
from resequencer.printable import counted
from resequencer.record import Partition

_GRACE_SECONDS = 1
"""How long a missing topic is tolerated: the brokers may not know a topic yet that was just created."""
_LOOK_SECONDS = 0.2


def preflight(settings: KafkaSettings, workers: int = 1) -> Sequence[str]:
    """Check topics, rights and positions; return notes for the operator, one sentence each. `workers` share the partitions out.

    Raises:
        ExceptionGroup: Topics or rights are missing; it holds one TransportWithheld for each.
        TransportUnavailable, TransportRefused: As the service itself would raise them.
    """
    topics, log = Topics(settings), LogReader(settings)
    try:
        return _preflight(topics, log, settings, workers)
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


def _preflight(topics: Topics, log: LogReader, settings: KafkaSettings, workers: int) -> Sequence[str]:
    withheld = [*_topics_withheld(topics), *group_withheld(settings), *transactions_withheld(topics)]
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
    spare = workers - len(partitions)
    if spare <= 0:
        return topic.notes
    idle = f"{counted(spare, 'worker')} {'is' if spare == 1 else 'are'} on standby"
    few = f"topic {settings.topics.input} has {counted(len(partitions), 'partition')}, and worker.count is {workers}: {idle}"
    return (*topic.notes, f"{few}. Give it more partitions, or lower worker.count")


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


def preflight_store(settings: KafkaSettings, made: Collection[str]) -> Sequence[str]:
    """Check topics and rights; return notes for the operator, one sentence each.

    The store reads `topics.input`, reads and writes `topics.values`, and writes the outputs. Its worker makes those of `made`
    that are missing.

    Raises:
        ExceptionGroup: Topics or rights are missing, or the values are not compacted; it holds one TransportWithheld for each.
        TransportUnavailable, TransportRefused: As the worker itself would raise them.
    """
    topics = settings.topics
    missing = {each for each in made if not _is_there(settings, each)}
    used = [(topics.input, topics.notifications), (topics.input, topics.dead_letters)]
    used += [(topics.input, topics.values), (topics.values, topics.values)]
    preflight_topics(settings, [(read, _or(written, read, missing)) for read, written in used if read not in missing])
    withheld = [*group_withheld(settings)]
    with closing(Topics(settings)) as all_topics:
        withheld += transactions_withheld(all_topics)
    notes: list[str] = []
    if topics.values not in missing:
        withheld += _values_withheld(settings, notes)
    if withheld:
        raise ExceptionGroup("withheld", withheld)
    return notes


def _or(written: str, read: str, missing: Collection[str]) -> str:
    """Return the topic to check in the place of one that is written; nothing is known of one that is still to be made."""
    return read if written in missing else written


def _is_there(settings: KafkaSettings, name: str) -> bool:
    with closing(_topics(settings, name)) as topics:
        return topics.is_there(name)


def _values_withheld(settings: KafkaSettings, notes: list[str]) -> Iterator[TransportWithheld]:
    """Yield what is wrong with the topic of the values; what its worker mends is noted."""
    commands, values = settings.topics.input, settings.topics.values
    with closing(_topics(settings, values)) as topics:
        found, policy = topics.look(), topics.find_setting(values, "cleanup.policy")
    with closing(_topics(settings, commands)) as topics:
        wanted = topics.look().partitions
    if policy is not None and "compact" not in policy:
        problem = f"its cleanup.policy is {policy}, so values would be deleted by their age. Set cleanup.policy = compact"
        yield TransportWithheld(f"topic {values}", problem)
    if found.partitions > wanted:
        problem = (
            f"it has {found.partitions} partitions, but the topic of its commands, {commands}, has {wanted}: values in the "
            "others would never be found again. Give the commands as many"
        )
        yield TransportWithheld(f"topic {values}", problem)
    if found.partitions < wanted:
        notes.append(
            f"topic {values} has {found.partitions} partitions, and {commands} has {wanted}: a worker adds the others. If "
            f"{commands} had fewer before, commands of a key may now be elsewhere than its values"
        )


def _topics(settings: KafkaSettings, name: str) -> Topics:
    return Topics(replace(settings, topics=KafkaTopics(name, name, name)))


def find_unread(settings: KafkaSettings, group_of: Callable[[str], str | None]) -> Mapping[str, str]:
    """Return each topic that holds records beyond the positions of its group, with the group.

    `group_of` returns the group that reads a topic, None if the topic is not asked for.

    Raises:
        TransportUnavailable, TransportRefused: It cannot be found out.
    """
    with closing(open_admin(settings)) as admin, translated("the topics"):
        asked = {name: group for name in admin.list_topics() if (group := group_of(name)) is not None}
        return {name: group for name, group in asked.items() if _is_unread(admin, name, group)}


def _is_unread(admin: KafkaAdminClient, topic: str, group: str) -> bool:
    (described,) = admin.describe_topics([topic])
    names = [TopicPartition(topic, each["partition_index"]) for each in described["partitions"]]
    starts = admin.list_partition_offsets(dict.fromkeys(names, OffsetSpec.EARLIEST))
    ends = admin.list_partition_offsets(dict.fromkeys(names, OffsetSpec.LATEST))
    committed = admin.list_group_offsets({group: names}).get(group, {})
    positions = {name: max(starts[name].offset, committed[name].offset if name in committed else 0) for name in names}
    return any(positions[name] < ends[name].offset for name in names)
