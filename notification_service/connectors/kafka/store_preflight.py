"""Checks the brokers for what a store on topics will need. It changes nothing: it joins no group and fences no worker."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from msgspec.structs import replace

from guardian.ports import TransportWithheld
from notification_service.connectors.kafka.core.topic_names import KafkaTopics
from notification_service.connectors.kafka.preflight import group_withheld, preflight_topics, transactions_withheld
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topics import Topics


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
    withheld = [*_withheld(settings)]
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


def _withheld(settings: KafkaSettings) -> Iterator[TransportWithheld]:
    yield from group_withheld(settings)
    with closing(Topics(settings)) as topics:
        yield from transactions_withheld(topics)


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
