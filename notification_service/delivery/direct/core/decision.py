"""What follows the outcome of a call for a record of a topic. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from guardian.headers import Way, dead_letter_headers, moved_headers, own_headers
from guardian.ports import Channel, OutputRecord
from notification_service.connectors.kafka.core.client_options import KEPT_FOR_EVER, KafkaTopics
from notification_service.delivery.core.answers import Again, Done, Failed, Limited, Outcome, Rejected, Suspended
from notification_service.delivery.core.jobs import RetryMode
from notification_service.delivery.settings import Policy, Receiver, Step
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Headers, Record


class Ended(msgspec.Struct, frozen=True):
    """The receiver has it."""


class Waits(msgspec.Struct, frozen=True):
    """It is tried again after `after_ms` at the earliest; `counts`: the attempt counts."""

    after_ms: int
    error: str
    counts: bool


class Moves(msgspec.Struct, frozen=True):
    """All attempts of this stage were made: it goes to the next topic, or is a dead letter."""

    error: str


class Dead(NamedTuple):
    reason: DeadLetterReason
    error: str


Decision = Ended | Waits | Moves | Dead


def decide(outcome: Outcome, *, skips: bool, is_asleep: bool) -> Decision:
    """Return what follows. With `skips` an operator wants no further attempt after one that counts.

    `is_asleep`: the call was the probe of a receiver that sleeps, and still does. Then nothing counts.
    """
    if isinstance(outcome, Done):
        return Ended()
    if is_asleep or isinstance(outcome, Suspended | Limited):
        return Waits(outcome.after_ms if isinstance(outcome, Limited) else 0, outcome.error, counts=False)
    if isinstance(outcome, Rejected):
        return Dead(DeadLetterReason.REJECTED, outcome.error)
    if isinstance(outcome, Again):
        return Dead(DeadLetterReason.SKIPPED, outcome.error) if skips else Waits(outcome.after_ms, outcome.error, counts=True)
    return _failed(outcome, skips=skips)


def _failed(outcome: Failed, *, skips: bool) -> Decision:
    if outcome.mode is not RetryMode.BACK_OFF:
        return Dead(DeadLetterReason.UNEXPECTED_ANSWER, outcome.error)
    return Dead(DeadLetterReason.SKIPPED, outcome.error) if skips else Moves(outcome.error)


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


def find_former_group(stages: Sequence[Stage], topic: str) -> str | None:
    """Return the group of a retry topic of the source for which there is no interval any more; None for any other topic."""
    source, found = stages[0], topic.removeprefix(f"{stages[0].topic}-")
    number = found.removeprefix(f"{source.group}-retry-")
    if found == topic or number == found or not re.fullmatch(r"[1-9][0-9]{0,3}", number):
        return None
    return None if any(each.topic == topic for each in stages) else found


def former_stage(stages: Sequence[Stage], topic: str, group: str) -> Stage:
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


class OpenRecord(msgspec.Struct, eq=False):
    """A record on its way to the receiver. It has what `Caller` sends.

    `key` is the text that stands for `{unit}` in a path. Records with the same `lane` are delivered one after the other.
    `notification_id` is sent as the idempotency key. `row` identifies the record at the gate. `due_at` is in ms of the clock that
    never goes back. `attempts` are the failed calls of this stage that count, `error` what the last call failed with, and
    `blocked_since` when the first one failed. `is_to_skip`: an operator wants it back when its call has failed.

    `limits` are the last answers that limited it, one after the other. How often the receiver had answered well is counted
    (`SharedGate.successes`): `failed_at` is that number when the last call failed; None: none did. `given_back` is how often a
    failure was held against the receiver.
    """

    record: Record
    way: Way
    key: str
    lane: bytes | int
    notification_id: str
    row: int
    due_at: int
    attempts: int = 0
    error: str | None = None
    blocked_since: Instant | None = None
    is_to_skip: bool = False
    failed_at: int | None = None
    given_back: int = 0
    limits: int = 0

    @property
    def offset(self) -> int:
        return self.record.origin.offset

    @property
    def headers(self) -> Headers:
        return self.record.headers

    @property
    def value(self) -> bytes:
        return self.record.content

    @property
    def step(self) -> Step:
        return Step.DELIVER


def moved(opened: OpenRecord, delay_ms: int, error: str, now: Instant) -> OutputRecord:
    """Return the record for the next retry topic, from which it is delivered after `delay_ms`."""
    way = opened.way._replace(attempts=opened.way.attempts + opened.attempts)
    headers = moved_headers(opened.headers, way, opened.notification_id, delay_ms, error, now)
    return OutputRecord(opened.offset + 1, Channel.NOTIFICATIONS, opened.record.key, headers, opened.value)


def dead_letter(opened: OpenRecord, reason: DeadLetterReason, error: str, now: Instant) -> OutputRecord:
    """Return the dead letter: the record as it was in the source, with the reason. Its position is that in the source."""
    own = own_headers(opened.headers, opened.notification_id)
    why = dead_letter_headers(reason, error, str(opened.way.origin).encode(), now, opened.record.cut)
    return OutputRecord(opened.offset + 1, Channel.DEAD_LETTERS, opened.record.key, (*own, *why), opened.record.value)
