"""The settings of JMS sources and sinks."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from resequencer.errors import ConfigurationError
from resequencer.printable import without_secrets
from resequencer.record import Partition

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import JmsConnection


class Missing(StrEnum):
    """What a source does with a message without an id: a dead letter, or its properties and body stand for the id."""

    REQUIRED = "required"
    DIGEST = "digest"


class BrokerSettings(msgspec.Struct, frozen=True):
    """A broker and a login. `url` is `amqp://host:port`, or `amqps://host:port` with TLS.

    A broker that is silent for `heartbeat_ms` counts as lost. A call waits for about `call_timeout_ms` at most, a transaction for
    as long without progress.
    """

    url: str
    user: str | None = None
    password: str | None = None
    heartbeat_ms: int = 10_000
    call_timeout_ms: int = 5_000

    @property
    def place(self) -> str:
        """The URL as operators may see it: without a password."""
        return without_secrets(self.url)


class QueuePartition(msgspec.Struct, frozen=True):
    """A partition of the source: a queue, or those of its messages that the selector takes.

    An `is_exclusive` queue has several consumers, of which the broker serves one. Its partition is assigned with its first
    message.
    """

    queue: str
    selector: str = ""
    is_exclusive: bool = False

    def __str__(self) -> str:
        return f"{self.queue} where {self.selector}" if self.selector else self.queue


class JmsSourceSettings(msgspec.Struct, frozen=True):
    """`window` is the most messages of a partition that are taken and not acknowledged. A value of more than `max_value_bytes`
    is cut.

    A partition's number is its place in the list. The workers in `slots` slots share them out; this one has `slot`, from 0.
    """

    broker: BrokerSettings
    partitions: Sequence[QueuePartition]
    window: int = 500
    message_id: Missing = Missing.REQUIRED
    max_value_bytes: int = 5 << 20
    slot: int = 0
    slots: int = 1

    @property
    def named(self) -> Mapping[Partition, QueuePartition]:
        """The partitions of this slot, by their names."""
        numbered = enumerate(self.partitions)
        return {Partition(each.queue, number): each for number, each in numbered if number % self.slots == self.slot}


class JmsSinkSettings(msgspec.Struct, frozen=True):
    """The queues of a sink. A marker that is missing for `marker_patience_ms` was taken away by an operator.

    Until then an earlier owner's connection may hold it, which the broker closes when it is silent.
    """

    broker: BrokerSettings
    notifications: str = "PAYMENT_STATUS_NOTIFICATION"
    dead_letters: str = "PAYMENT_STATUS_NOTIFICATION_DEAD_LETTERS"
    markers: str = "PAYMENT_STATUS_NOTIFICATION_MARKERS"
    marker_patience_ms: int = 90_000


class XmsSinkSettings(msgspec.Struct, frozen=True):
    """The queues of a sink that needs no transactions and keeps no marker."""

    broker: BrokerSettings
    notifications: str = "PAYMENT_STATUS_NOTIFICATION"
    dead_letters: str = "PAYMENT_STATUS_NOTIFICATION_DEAD_LETTERS"


def require_client() -> None:
    """Check that the client is installed.

    Raises:
        ConfigurationError: It is not; the text names the remedy.
    """
    try:
        import proton  # noqa: F401 - A service without them runs without it.
    except ImportError as error:
        problem = f"is not installed ({error}); install it by `make setup-jms`, or pip install '.[jms]'"
        raise ConfigurationError("python-qpid-proton, the client of JMS and XMS brokers,", problem) from error


def connect(settings: "BrokerSettings") -> "JmsConnection":
    """Return a new connection, which is open.

    Raises:
        ConfigurationError: The client is not installed.
        TransportUnavailable: The broker does not answer.
        TransportWithheld: It refuses the login.
    """
    require_client()
    from notification_service.connectors.jms.connection import JmsConnection

    return JmsConnection(settings)
