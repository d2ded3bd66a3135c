"""The stages of a receiver: the topics from which its records are read, one after the other. Pure."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from notification_service.connectors.kafka.core.topic_names import KEPT_FOR_EVER, KafkaTopics
from notification_service.delivery.settings import Policy, Receiver

_DAY_MS = 86_400_000
_REQUEUED_ATTEMPTS = 10
"""For a requeued record of a receiver without a limit: the requeue topic does not block, so no order can end the record."""


class Stage(msgspec.Struct, frozen=True):
    """One topic that is read for a receiver, and what happens to a record that fails there.

    The first one is the source; then come the retry topics, and at last the topic of requeued dead letters. A record is
    delivered `delay_ms` after it was moved there at the earliest. `receiver` has the attempts that are made in this stage. What
    fails for good goes to `next_topic`, to be delivered after `next_delay_ms`, or if that is None to the dead letters. `orders`
    is the topic of the operators' orders; only the source has one: elsewhere nothing blocks.
    """

    is_source: bool
    topic: str
    group: str
    delay_ms: int
    receiver: Receiver
    next_topic: str | None
    next_delay_ms: int
    dead_letters: str
    orders: str | None

    @property
    def topics(self) -> KafkaTopics:
        """The topics as the transport knows them: what moves takes the place of the notifications."""
        orders = self.orders or ""
        return KafkaTopics(self.topic, self.next_topic or self.dead_letters, self.dead_letters, orders, orders)

    @property
    def retention_ms(self) -> int:
        """How long a topic that the service reads keeps its records: twice its delay, and a week to find out why none does."""
        return 2 * self.delay_ms + 7 * _DAY_MS


def topics_to_make(stages: Sequence[Stage]) -> dict[str, dict[str, str]]:
    """Return the topics beside the source that the service makes, with their configuration."""
    source = stages[0]
    # The brokers' clock counts the retention: by a worker's clock that is behind, a record could be deleted before it is read.
    read = {**KEPT_FOR_EVER, "message.timestamp.type": "LogAppendTime"}
    made = {each.topic: {**read, "retention.ms": str(each.retention_ms)} for each in stages[1:]}
    # Dead letters are kept until an operator deletes them, and orders with them: they say why something was skipped. They are
    # found by the instant at which they were written.
    return made | {name: KEPT_FOR_EVER for name in (source.dead_letters, source.orders) if name}


def find_left_group(stages: Sequence[Stage], topic: str) -> str | None:
    """Return the group of a retry topic of the source for which there is no interval any more; None for any other topic."""
    source, found = stages[0], topic.removeprefix(f"{stages[0].topic}-")
    number = found.removeprefix(f"{source.group}-retry-")
    if found == topic or number == found or not re.fullmatch(r"[1-9][0-9]{0,3}", number):
        return None
    return None if any(each.topic == topic for each in stages) else found


def left_stage(stages: Sequence[Stage], topic: str, group: str) -> Stage:
    """Return a stage that delivers what such a retry topic still holds: at once, and one time. What fails is a dead letter."""
    receiver = _with_attempts(stages[0].receiver, 1)
    return Stage(
        is_source=False,
        topic=topic,
        group=group,
        delay_ms=0,
        receiver=receiver,
        next_topic=None,
        next_delay_ms=0,
        dead_letters=stages[0].dead_letters,
        orders=None,
    )


def stages_of(receiver: Receiver, topic: str, group: str) -> tuple[Stage, ...]:
    """Return the source `topic` as the first stage, then the retry topics, at last the topic of requeued dead letters.

    Each stage has a consumer group of its own: members of one group would get the partitions of all topics.
    """
    return tuple(_stages(receiver, topic, group))


def _stages(receiver: Receiver, topic: str, group: str) -> Iterator[Stage]:
    delays = receiver.retry_topics_ms
    retries = [f"{topic}-{group}-retry-{number}" for number in range(1, len(delays) + 1)]
    nexts = [*zip(retries, delays, strict=True), (None, 0)]

    def stage(read: str, delay_ms: int, made: Receiver, following: tuple[str | None, int]) -> Stage:
        is_source = read == topic
        return Stage(
            is_source=is_source,
            topic=read,
            group=group if is_source else read.removeprefix(f"{topic}-"),
            delay_ms=delay_ms,
            receiver=made,
            next_topic=following[0],
            next_delay_ms=following[1],
            dead_letters=f"{topic}-{group}-dlq",
            orders=f"{topic}-{group}-orders" if is_source else None,
        )

    once = _with_attempts(receiver, 1)
    first = once if receiver.policy is Policy.RETRY_TOPICS else receiver
    yield stage(topic, 0, first, nexts[0])
    for number, (each, delay_ms) in enumerate(zip(retries, delays, strict=True)):
        yield stage(each, delay_ms, once, nexts[number + 1])
    limited = first if first.retry.attempts is not None else _with_attempts(first, _REQUEUED_ATTEMPTS)
    yield stage(requeue_topic_of(topic, group), 0, limited, nexts[0])


def requeue_topic_of(topic: str, group: str) -> str:
    """Return the topic to which dead letters of a source are requeued: other readers of the source do not see them."""
    return f"{topic}-{group}-requeued"


def _with_attempts(receiver: Receiver, attempts: int) -> Receiver:
    return msgspec.structs.replace(receiver, retry=msgspec.structs.replace(receiver.retry, attempts=attempts))
