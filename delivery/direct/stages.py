"""The stages of a receiver: the topics from which its records are read, one after the other. Pure."""

from collections.abc import Iterator, Sequence

import msgspec

from connectors.kafka.core.topic_names import KafkaTopics
from delivery.settings import Policy, Receiver

_DAY_MS = 86_400_000
_RETENTION, _FOR_EVER = "retention.ms", "-1"


class Stage(msgspec.Struct, frozen=True):
    """One topic that is read for a receiver, and what happens to a record that fails there.

    Stage 0 is the source, the others are retry topics. A record is delivered `delay_ms` after it was moved there at the
    earliest. `receiver` has the attempts that are made in this stage. What fails for good goes to `next_topic`, or if that is
    None to the dead letters. `orders` is the topic of the operators' orders; there are none for retry topics, where nothing
    blocks.
    """

    number: int
    topic: str
    group: str
    delay_ms: int
    receiver: Receiver
    next_topic: str | None
    dead_letters: str
    orders: str | None

    @property
    def topics(self) -> KafkaTopics:
        """The topics as the transport knows them: what moves takes the place of the notifications."""
        orders = self.orders or ""
        return KafkaTopics(self.topic, self.next_topic or self.dead_letters, self.dead_letters, orders, orders)

    @property
    def retention_ms(self) -> int:
        """How long a retry topic keeps its records: twice its delay, and a week to find out why nothing reads them."""
        return 2 * self.delay_ms + 7 * _DAY_MS


def topics_to_make(stages: Sequence[Stage]) -> dict[str, dict[str, str]]:
    """Return the topics beside the source that the service makes, with their configuration."""
    source = stages[0]
    made = {each.topic: {_RETENTION: str(each.retention_ms)} for each in stages[1:]}
    # Dead letters are kept until an operator deletes them, and orders with them: they say why something was skipped.
    return made | {name: {_RETENTION: _FOR_EVER} for name in (source.dead_letters, source.orders) if name}


def stages_of(receiver: Receiver, topic: str, group: str) -> tuple[Stage, ...]:
    """Return the source `topic` as the first stage, then the retry topics.

    Each stage has a consumer group of its own: members of one group would get the partitions of all topics.
    """
    return tuple(_stages(receiver, topic, group))


def _stages(receiver: Receiver, topic: str, group: str) -> Iterator[Stage]:
    delays = receiver.retry_topics_ms
    topics = [topic, *(f"{topic}-{group}-retry-{number}" for number in range(1, len(delays) + 1))]
    once = msgspec.structs.replace(receiver, retry=msgspec.structs.replace(receiver.retry, attempts=1))
    for number, each in enumerate(topics):
        is_source = number == 0
        yield Stage(
            number=number,
            topic=each,
            group=group if is_source else f"{group}-retry-{number}",
            delay_ms=0 if is_source else delays[number - 1],
            receiver=receiver if is_source and receiver.policy is not Policy.RETRY_TOPICS else once,
            next_topic=topics[number + 1] if number + 1 < len(topics) else None,
            dead_letters=f"{topic}-{group}-dlq",
            orders=f"{topic}-{group}-orders" if is_source else None,
        )
