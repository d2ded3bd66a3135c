"""The sink of XMS: a broker that speaks AMQP 1.0, be it without transactions. It keeps no marker, so each message leaves at least
once.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from guardian.ports import Channel, OutputRecord, PartitionOutput, TransportRefused
from notification_service.connectors.jms.client import connect
from notification_service.connectors.jms.messages import Outgoing, outgoing
from notification_service.connectors.jms.settings import BrokerSettings, XmsSinkSettings
from notification_service.connectors.region.left import Left, Numbered
from notification_service.connectors.region.letters import find_fitting
from notification_service.connectors.region.port import SinkCapabilities
from resequencer.clock import Clock
from resequencer.errors import ResequencerError
from resequencer.record import OutputNumber, Partition

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import JmsConnection
    from notification_service.connectors.jms.plain_sending import PlainSending

_MESSAGES_PER_SECOND = 500
"""For the time limit of a publication: a broker that is slower than that counts as one that does not answer."""


class XmsSink:
    """Implements the port of sinks. Nothing is connected before the first publication.

    The links carry the capability `queue`. A message's id is its number, so that a receiver can recognise what comes again.
    `clock` gives the instant of dead letters that are made here.
    """

    capabilities = SinkCapabilities(is_transactional=False, remembers=False)
    notes: Sequence[str] = ()

    def __init__(
        self, settings: XmsSinkSettings, clock: Clock, connect: "Callable[[BrokerSettings], JmsConnection]" = connect
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._connect = connect
        self._connection: JmsConnection | None = None
        self._sending: PlainSending | None = None
        self._left = Left()
        self._queues = {Channel.NOTIFICATIONS: settings.notifications, Channel.DEAD_LETTERS: settings.dead_letters}

    def position(self, partition: Partition) -> None:
        """None: the sink does not remember. Nothing is fenced: an earlier owner may still send."""
        self._left.forget(partition)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """As the port describes. A notification that is too large for the broker leaves as a dead letter under its number.

        Raises:
            TransportRefused: A queue does not take a message.
        """
        remaining = [each for each in self._left.remaining(outputs) if each.record.channel in self._queues]
        if not remaining:
            return
        connection, sending = self._connected()
        sending.taken = 0
        try:
            limits = connection.call(lambda io: sending.limits(io, self._queues.values()))
            messages = [self._message(each, limits) for each in remaining]
            connection.call(lambda io: sending.send(io, messages), 6 * self._seconds + len(messages) / _MESSAGES_PER_SECOND)
        except ResequencerError:
            self.close()  # What is under way on it has no effect any more.
            raise
        finally:
            self._left.note(remaining[: sending.taken])

    def close(self) -> None:
        connection, self._connection, self._sending = self._connection, None, None
        if connection is not None:
            connection.close()

    @property
    def _seconds(self) -> float:
        return self._settings.broker.call_timeout_ms / 1000

    def _message(self, numbered: Numbered, limits: Mapping[str, int]) -> tuple[str, Outgoing]:
        """Return the queue and the message of a record, or of a smaller one that the broker takes.

        Raises:
            TransportRefused: It takes none.
        """
        from notification_service.connectors.jms.sending import size_of

        partition, record = numbered
        id_ = f"ID:{OutputNumber(partition, record.number)}"

        def made(each: OutputRecord) -> Outgoing:
            return outgoing(id_, each.key, each.headers, each.value)

        def find_problem(each: OutputRecord) -> str | None:
            limit = limits[self._queues[each.channel]]
            if not limit or (size := size_of(made(each))) <= limit:
                return None
            return f"the message takes {size} bytes, but the queue accepts {limit}"

        found = find_fitting(record, find_problem, self._clock.now())
        if found is None:
            raise TransportRefused(f"queue {self._queues[record.channel]}", "no message fits. Raise the limit of the broker")
        return self._queues[found.channel], made(found)

    def _connected(self) -> "tuple[JmsConnection, PlainSending]":
        if self._connection is None or self._sending is None or self._connection.is_lost:
            from notification_service.connectors.jms.plain_sending import PlainSending

            with suppress(ResequencerError):
                self.close()
            self._connection, sending = self._connect(self._settings.broker), PlainSending()
            self._sending = sending
            self._connection.call(lambda io: io.on_end(sending.forget))
        return self._connection, self._sending
