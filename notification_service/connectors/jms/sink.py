"""Sends records to queues, each once: a marker tells in the same transaction how far each partition of the source is published.

To queues without a marker (XMS) it sends at least once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Generic, TypeVar
from uuid import uuid4

from guardian.ports import (
    Channel,
    NotPublished,
    OutputRecord,
    PartitionOutput,
    Position,
    PublishRefused,
    TransportRefused,
    TransportUnavailable,
)
from notification_service.connectors.jms.messages import Outgoing, outgoing
from notification_service.connectors.jms.settings import BrokerSettings, JmsSinkSettings, XmsSinkSettings
from notification_service.connectors.optional_clients import connect_jms
from notification_service.connectors.region_port import Numbered, Published, SinkCapabilities, find_fitting, smaller
from resequencer.clock import Clock
from resequencer.errors import ResequencerError
from resequencer.record import OutputNumber, Partition

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io, JmsConnection
    from notification_service.connectors.jms.sending import Fetched, PlainSending, Progress, Sending


_Links = TypeVar("_Links", "Sending", "PlainSending")
_MESSAGES_PER_SECOND = 500
"""For the time limit of a publication: a broker that is slower than that counts as one that does not answer."""


class _QueueSink(Generic[_Links]):
    """The connection of a sink, which the first call makes, and the links by which it sends."""

    notes: Sequence[str] = ()

    def __init__(self, settings: XmsSinkSettings, clock: Clock, connect: "Callable[[BrokerSettings], JmsConnection]") -> None:
        self._settings = settings
        self._clock = clock
        self._connect = connect
        self._connection: JmsConnection | None = None
        self._sending: _Links | None = None
        self._queues = {Channel.NOTIFICATIONS: settings.notifications, Channel.DEAD_LETTERS: settings.dead_letters}

    def close(self) -> None:
        connection, self._connection, self._sending = self._connection, None, None
        if connection is not None:
            connection.close()

    @property
    def _seconds(self) -> float:
        return self._settings.call_timeout_ms / 1000

    def _connected(self) -> "tuple[JmsConnection, _Links]":
        if self._connection is None or self._sending is None or self._connection.is_lost:
            with suppress(ResequencerError):
                self.close()
            self._connection = self._connect(self._settings)
            self._sending = sending = self._new_sending()
            self._connection.call(lambda io: io.on_end(sending.forget))
        return self._connection, self._sending

    def _new_sending(self) -> _Links:
        raise NotImplementedError


class JmsSink(_QueueSink["Sending"]):
    """Implements the port of sinks. Nothing is connected before the first call.

    All partitions of a publication leave in one transaction. If its outcome is unknown, the next call reads the markers, which
    tell it: what was published is passed over. `clock` gives the instant of dead letters that are made here.
    """

    capabilities = SinkCapabilities(is_transactional=True, remembers=True)
    _settings: JmsSinkSettings

    def __init__(
        self, settings: JmsSinkSettings, clock: Clock, connect: "Callable[[BrokerSettings], JmsConnection]" = connect_jms
    ) -> None:
        super().__init__(settings, clock, connect)
        self._known: dict[Partition, frozenset[str]] = {}
        self._missing_since: dict[Partition, float] = {}
        self._instead: dict[OutputRecord, tuple[OutputRecord, Iterator[OutputRecord]]] = {}

    def position(self, partition: Partition) -> Position | None:
        """As the port describes. A copy takes the marker's place: so the earlier owner's marker is gone.

        Raises:
            TransportRefused: The marker is missing for long: it was taken away.
        """
        self._known.pop(partition, None)
        connection, sending, fresh = *self._connected(), uuid4().hex
        from notification_service.connectors.jms.sending import Progress, ToSend

        def exchange(io: "Io") -> "Fetched | None":
            found = sending.fetch(io, [partition], tries=1)
            if not found:
                sending.make_first(io, partition, uuid4().hex)
                found = sending.fetch(io, [partition])
            if partition in found:
                sending.commit(io, found, ToSend((), {partition: (fresh, found[partition].marker)}), Progress())
            return found[partition]._replace(held=None) if found else None

        try:
            found = connection.call(exchange, 6 * self._seconds)
        except ResequencerError:
            self.close()  # It may hold the marker.
            raise
        if found is None:
            raise self._missing(partition)
        self._missing_since.pop(partition, None)
        self._known[partition] = frozenset({fresh})
        return found.marker.position

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """As the port describes. A notification that is too large for the broker leaves as a dead letter under its number.

        Raises:
            TransportRefused: A queue does not take a record, or the marker is missing for long.
        """
        from notification_service.connectors.jms.sending import NotTaken

        while True:
            try:
                self._publish(outputs)
            except NotTaken as error:
                self._replace(outputs, error.id, str(error))
            else:
                return

    def _publish(self, outputs: Sequence[PartitionOutput]) -> None:
        from notification_service.connectors.jms.sending import NotTaken, Progress

        if unread := [each.partition for each in outputs if each.partition not in self._known]:
            raise PublishRefused(f"the markers were not read: {', '.join(map(str, unread))}")
        progress, fresh = Progress(), {each.partition: uuid4().hex for each in outputs}
        seconds = 6 * self._seconds + sum(len(each.records) for each in outputs) / _MESSAGES_PER_SECOND
        try:
            connection, sending = self._connected()
            missing = connection.call(lambda io: self._exchange(io, sending, outputs, fresh, progress), seconds)
        except (PublishRefused, NotTaken):
            raise
        except TransportUnavailable as error:
            raise self._failed(error, progress, fresh) from error
        except ResequencerError:
            self.close()  # A transaction may be open.
            raise
        if missing:
            raise self._missing(missing[0])
        self._missing_since.clear()
        self._instead.clear()

    def _failed(self, error: TransportUnavailable, progress: "Progress", fresh: Mapping[Partition, str]) -> TransportUnavailable:
        """Note which markers may be in the queue, and return the error to raise."""
        self._known |= {partition: frozenset({id_}) for partition, id_ in progress.fetched.items()}
        if progress.may_be_committed:
            self._known |= {partition: self._known[partition] | {id_} for partition, id_ in fresh.items()}
        is_undecided = any(len(self._known[each]) > 1 for each in fresh)
        return TransportUnavailable(str(error)) if is_undecided else NotPublished(str(error))

    def _exchange(
        self,
        io: "Io",
        sending: "Sending",
        outputs: Sequence[PartitionOutput],
        fresh: Mapping[Partition, str],
        progress: "Progress",
    ) -> list[Partition]:
        """In the thread: send what is not published. Return the partitions whose markers are missing; then nothing was sent."""
        from notification_service.connectors.jms.sending import ToSend

        found = sending.fetch(io, [each.partition for each in outputs])
        if missing := [each.partition for each in outputs if each.partition not in found]:
            sending.release(found)
            return missing
        if lost := [each for each, marker in found.items() if marker.id not in self._known[each]]:
            sending.release(found)
            raise PublishRefused(f"another worker has taken over {', '.join(map(str, lost))}")
        progress.fetched = {each: marker.id for each, marker in found.items()}
        markers = {each.partition: found[each.partition].marker.after(each) for each in outputs}
        if all(markers[each] == found[each].marker for each in markers) and self._is_undecided(outputs):
            sending.release(found)
            self._known |= {each: frozenset({marker.id}) for each, marker in found.items()}
            return []
        messages = [
            (self._queues[record.channel], outgoing(_id(partition, record), record.key, record.headers, record.value))
            for partition, record in self._to_send(outputs)
            if record.number > found[partition].marker.highest
        ]
        sending.commit(io, found, ToSend(messages, {each: (fresh[each], markers[each]) for each in markers}), progress)
        self._known |= {each: frozenset({id_}) for each, id_ in fresh.items()}
        return []

    def _is_undecided(self, outputs: Sequence[PartitionOutput]) -> bool:
        return any(len(self._known[each.partition]) > 1 for each in outputs)

    def _to_send(self, outputs: Sequence[PartitionOutput]) -> Iterator[tuple[Partition, OutputRecord]]:
        for output in outputs:
            for each in output.records:
                record = self._instead[each][0] if each in self._instead else each
                if record.channel in self._queues:
                    yield output.partition, record

    def _replace(self, outputs: Sequence[PartitionOutput], id_: str, problem: str) -> None:
        """Send a smaller record under the same number from now on.

        Raises:
            TransportRefused: There is no smaller one.
        """
        refused = next(each for output in outputs for each in output.records if _id(output.partition, each) == id_)
        _, others = self._instead.get(refused, (refused, smaller(refused, problem, self._clock.now())))
        record = next(others, None)
        if record is None:
            raise TransportRefused(f"queue {self._queues[refused.channel]}", f"{problem}. Raise the limit of the broker")
        self._instead[refused] = record, others

    def _missing(self, partition: Partition) -> TransportRefused | TransportUnavailable:
        since = self._missing_since.setdefault(partition, monotonic())
        queue = f"queue {self._settings.markers}"
        if (monotonic() - since) * 1000 < self._settings.marker_patience_ms:
            return TransportUnavailable(f"{queue}: another owner's connection holds the marker of {partition}, or it was removed")
        problem = (
            f"the marker of {partition} is missing: its message was removed, or another program holds it. Put it back. To go on "
            "without it, as a sink that never got anything, set another markers.queue"
        )
        return TransportRefused(queue, problem)

    def _new_sending(self) -> "Sending":
        from notification_service.connectors.jms.sending import Sending

        return Sending(self._settings.markers)


def _id(partition: Partition, record: OutputRecord) -> str:
    return f"ID:{OutputNumber(partition, record.number)}"


class XmsSink(_QueueSink["PlainSending"]):
    """Implements the port of sinks. Nothing is connected before the first publication.

    The links carry the capability `queue`. A message's id is its number, so that a receiver can recognise what comes again.
    `clock` gives the instant of dead letters that are made here.
    """

    capabilities = SinkCapabilities(is_transactional=False, remembers=False)

    def __init__(
        self, settings: XmsSinkSettings, clock: Clock, connect: "Callable[[BrokerSettings], JmsConnection]" = connect_jms
    ) -> None:
        super().__init__(settings, clock, connect)
        self._published = Published()

    def position(self, partition: Partition) -> None:
        """None: the sink does not remember. Nothing is fenced: an earlier owner may still send."""
        self._published.forget(partition)

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        """As the port describes. A notification that is too large for the broker leaves as a dead letter under its number.

        Raises:
            TransportRefused: A queue does not take a message.
        """
        remaining = [each for each in self._published.remaining(outputs) if each.record.channel in self._queues]
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
            self._published.note(remaining[: sending.taken])

    def _message(self, numbered: Numbered, limits: Mapping[str, int]) -> tuple[str, Outgoing]:
        """Return the queue and the message of a record, or of a smaller one that the broker takes.

        Raises:
            TransportRefused: It takes none.
        """
        from notification_service.connectors.jms.sending import size_of

        partition, record = numbered

        def made(each: OutputRecord) -> Outgoing:
            return outgoing(_id(partition, record), each.key, each.headers, each.value)

        def find_problem(each: OutputRecord) -> str | None:
            limit = limits[self._queues[each.channel]]
            if not limit or (size := size_of(made(each))) <= limit:
                return None
            return f"the message takes {size} bytes, but the queue accepts {limit}"

        found = find_fitting(record, find_problem, self._clock.now())
        if found is None:
            raise TransportRefused(f"queue {self._queues[record.channel]}", "no message fits. Raise the limit of the broker")
        return self._queues[found.channel], made(found)

    def _new_sending(self) -> "PlainSending":
        from notification_service.connectors.jms.sending import PlainSending

        return PlainSending()
