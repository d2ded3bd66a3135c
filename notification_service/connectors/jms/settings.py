"""The settings of sources and sinks of AMQP 1.0: JMS and XMS. Each is a section of the configuration."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from resequencer.keys.configuration_key import Key
from resequencer.keys.list_types import MAX_ITEMS
from resequencer.keys.value_types import PASSWORD, USER, Choice, Duration, Mismatch, Switch, Text, Url
from resequencer.printable import without_secrets
from resequencer.record import Partition


class Missing(StrEnum):
    """What a source does with a message without an id: a dead letter, or its properties and body stand for the id."""

    REQUIRED = "required"
    DIGEST = "digest"


_QUEUE_PATTERN = r"[A-Za-z0-9._:/$@+-]{1,200}"
"""Braces and spaces are left out, for the names of storages and of source positions are made of it."""

QUEUE = Text(_QUEUE_PATTERN, "the name of a queue: 1 to 200 letters, digits, and . _ : / $ @ + -")
_LONGEST_SELECTOR = 2_000


class BrokerSettings(msgspec.Struct, frozen=True):
    """A broker and a login. `url` is `amqp://host:port`, or `amqps://host:port` with TLS; a `Secret`, for it may hold a password.

    A broker that is silent for `heartbeat_ms` counts as lost. A call waits for about `call_timeout_ms` at most, a transaction for
    as long without progress.
    """

    url: Annotated[str, Key(Url(("amqp", "amqps")))]
    user: Annotated[str | None, Key(USER)] = None
    password: Annotated[str | None, Key(PASSWORD)] = None
    heartbeat_ms: int = 10_000
    call_timeout_ms: int = 5_000

    @property
    def place(self) -> str:
        """The URL as operators may see it: without a password."""
        return without_secrets(self.url)


class QueuePartition(msgspec.Struct, frozen=True):
    """A partition of the source: a queue, or those of its messages that the selector of JMS takes.

    An `is_exclusive` queue has several consumers, of which the broker serves one. Its partition is assigned with its first
    message.
    """

    queue: str
    selector: str = ""
    is_exclusive: bool = False

    def __str__(self) -> str:
        return f"{self.queue} where {self.selector}" if self.selector else self.queue


class QueueParts(msgspec.Struct, frozen=True):
    """A list of parts of queues: objects with `queue`, with `selector` if it is not the whole queue, and with `exclusive`."""

    expects: str = 'a list of queues with selectors, such as [{ queue = "EVENTS", selector = "part = 0" }]'

    def read(self, value: Any) -> tuple[QueuePartition, ...]:
        if not isinstance(value, list) or len(value) > MAX_ITEMS:
            raise Mismatch
        return tuple(map(_queue_part, value))

    def show(self, value: tuple[QueuePartition, ...]) -> list[dict[str, str | bool]]:
        return [
            {"queue": each.queue}
            | ({"selector": each.selector} if each.selector else {})
            | ({"exclusive": True} if each.is_exclusive else {})
            for each in value
        ]


def _queue_part(value: Any) -> QueuePartition:
    if not isinstance(value, dict) or "queue" not in value or not value.keys() <= {"queue", "selector", "exclusive"}:
        raise Mismatch
    queue, selector = value["queue"], value.get("selector", "")
    if not isinstance(queue, str) or not re.fullmatch(_QUEUE_PATTERN, queue, re.ASCII):
        raise Mismatch
    if not isinstance(selector, str) or len(selector) > _LONGEST_SELECTOR or not selector.isprintable():
        raise Mismatch
    return QueuePartition(queue, selector.strip(), Switch().read(value.get("exclusive", False)))


class JmsSourceSettings(BrokerSettings, frozen=True, kw_only=True):
    """`window` is the most messages of a partition that are taken and not acknowledged. A value of more than `max_value_bytes`
    is cut.

    A partition's number is its place in the list, and its topic is the name of its queue. The workers in `slots` slots share them
    out; this one has `slot`, from 0.
    """

    partitions: Annotated[Sequence[QueuePartition], Key(QueueParts())]
    message_id: Annotated[Missing, Key(Choice(tuple(Missing)))] = Missing.REQUIRED
    heartbeat_ms: Annotated[int, Key(Duration("1s", "5m"))] = 10_000
    window: int = 500
    max_value_bytes: int = 5 << 20
    slot: int = 0
    slots: int = 1

    @property
    def named(self) -> Mapping[Partition, QueuePartition]:
        """The partitions of this slot, by their names."""
        numbered = enumerate(self.partitions)
        return {Partition(each.queue, number): each for number, each in numbered if number % self.slots == self.slot}


class XmsSourceSettings(BrokerSettings, frozen=True, kw_only=True):
    """`window` is the most messages that are taken and not acknowledged. A value of more than `max_value_bytes` is cut."""

    queue: Annotated[str, Key(QUEUE)]
    window: int = 500
    max_value_bytes: int = 5 << 20


class XmsSinkSettings(BrokerSettings, frozen=True, kw_only=True):
    """The broker and the queues of a sink that needs no transactions and keeps no marker."""

    notifications: Annotated[str, Key(QUEUE, "notifications.queue")] = "PAYMENT_STATUS_NOTIFICATION"
    dead_letters: Annotated[str, Key(QUEUE, "dead-letters.queue")] = "PAYMENT_STATUS_NOTIFICATION_DEAD_LETTERS"


class JmsSinkSettings(XmsSinkSettings, frozen=True, kw_only=True):
    """The broker and the queues of a sink with transactions, one of them for its markers.

    A marker that is missing for `marker_patience_ms` was taken away by an operator. Until then an earlier
    owner's connection may hold it, which the broker closes when it is silent.
    """

    markers: Annotated[str, Key(QUEUE, "markers.queue")] = "PAYMENT_STATUS_NOTIFICATION_MARKERS"
    marker_patience_ms: int = 90_000
