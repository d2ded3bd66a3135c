"""Reads queues: a message has the number of its intake as offset, and is accepted once its output is published."""

import logging
from collections.abc import Callable, Collection, Mapping
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

from guardian.ports import (
    Polled,
    Position,
    PublishRefused,
    TransportRefused,
    TransportStatus,
    TransportUnavailable,
    TransportWithheld,
)
from notification_service.connectors.jms.messages import Taken, TakenMessages, digest_of, read_record
from notification_service.connectors.jms.settings import BrokerSettings, JmsSourceSettings, Missing, QueuePartition
from notification_service.connectors.optional_clients import connect_jms
from notification_service.connectors.region_port import SourceCapabilities
from resequencer.record import Origin, Partition, Record

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io, JmsConnection
    from notification_service.connectors.jms.receiving_link import ReceivingLink

_LOG = logging.getLogger("resequencer.connectors")

_MAX_EARLIER_WINDOWS = 4
"""How many windows of messages of earlier owners are remembered. What was not accepted comes before anything else."""

_EARLIER_SECONDS = 600
"""How long they are remembered at least. A broker closes a connection that is silent after a minute at most, by default."""

_POLL_BYTES = 16 << 20
"""About how many bytes one poll returns at most."""

_MESSAGES_PER_SECOND = 500
"""A slow broker accepts more."""


class _Reading:
    """A partition after its seek."""

    def __init__(self, link: "ReceivingLink", next_offset: int, taken: TakenMessages) -> None:
        self.link = link
        self.next_offset = next_offset
        self.taken = taken
        self.since = monotonic()
        self.has_taken = False


class JmsSource:
    """Implements the port of sources. Nothing is connected before the first call that needs it.

    All partitions are assigned to this worker. One of an exclusive queue is assigned once its first message has come: until then
    the broker may serve another consumer. A partition whose link or connection is lost is left out once, and taken over again:
    all of its messages that are not acknowledged come again.
    """

    def __init__(self, settings: JmsSourceSettings, connect: "Callable[[BrokerSettings], JmsConnection]" = connect_jms) -> None:
        self.capabilities = SourceCapabilities(can_replay=False, remembers=False, window=settings.window)
        self._settings = settings
        self._connect = connect
        self._named = settings.named
        self._connection: JmsConnection | None = None
        self._readings: dict[Partition, _Reading] = {}
        self._waiting: dict[Partition, ReceivingLink] = {}
        self._left_out: set[Partition] = set()
        self._unopened: dict[Partition, TransportWithheld | TransportRefused] = {}
        self._turn = 0
        self._woken = Event()

    def standing(self) -> TransportStatus:
        waiting = [str(self._named[each]) for each in self._waiting if not self._is_served(each)]
        notes = [f"{name} is not read: {error}" for name, error in self._unopened.items()]
        if waiting:
            notes.append(f"waiting for a first message, another consumer may be served: {', '.join(waiting)}")
        return TransportStatus(notes=tuple(notes), remembers=False)

    def assignment(self) -> list[Partition]:
        self._notice_losses()
        self._wait_for_exclusive()
        assigned = [each for each in self._named if each not in self._left_out and self._is_served(each)]
        self._left_out.clear()
        return assigned

    def position(self, partition: Partition) -> Position | None:  # noqa: ARG002 - A queue keeps no positions.
        return None

    def source(self, partition: Partition) -> str:
        """As the port describes: the queue and the selector, whatever the number of the partition in the configuration."""
        return str(self._named[partition])

    def start_offset(self, partition: Partition) -> int:
        """Return the next number: nothing that was acknowledged can be read again."""
        return self.end_offset(partition)

    def end_offset(self, partition: Partition) -> int:
        reading = self._readings.get(partition)
        return 0 if reading is None else reading.next_offset + reading.link.waiting

    def seek(self, partition: Partition, offset: int, source_state: str = "") -> None:
        """Number messages from `offset` on. What was not accepted comes again, in order, before anything else.

        Raises:
            TransportWithheld, TransportRefused: The queue, a right or a valid selector is missing.
            TransportUnavailable: The broker does not answer.
        """
        limit = _MAX_EARLIER_WINDOWS * self._settings.window
        taken = TakenMessages(str(self._named[partition]), source_state, limit)
        before = self._readings.pop(partition, None)
        link = self._waiting.pop(partition, None)
        if before is not None and not before.has_taken and not before.link.is_detached:
            link = before.link
        elif before is not None:
            self._connected().call(before.link.detach)
        named = self._named[partition]
        if link is None or link.is_detached:
            link = self._receive(named)
        self._readings[partition] = _Reading(link, offset, taken)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        """As the port describes. The end of a partition is known once its link had free credit for a second."""
        self._notice_losses()
        readable = [each for each in self._readings if each not in resting] if max_records else []
        if timeout_ms > 0:
            self._wait(readable, timeout_ms)
            self._woken.clear()
        self._notice_losses()
        # Ends come before the records, because they must not be newer.
        known, log_ends = self._ends()
        records, moved = self._take([each for each in readable if each in self._readings], max_records)
        states = {each: self._readings[each].taken.state() for each in moved}
        self._drop_what_came_again()
        return Polled(tuple(records), moved, known, log_ends, states)

    def wake(self) -> None:
        self._woken.set()
        connection = self._connection
        if connection is not None:
            connection.arrived.set()

    def check_owned(self, partitions: Collection[Partition]) -> None:
        """As the port describes. A takeover publishes before it seeks: then nothing was taken, and nothing is acknowledged."""
        self._notice_losses()
        if lost := [each for each in partitions if each in self._left_out or not self._is_served(each)]:
            raise PublishRefused(f"not read by this worker at the moment: {', '.join(map(str, lost))}")

    def acknowledge(self, positions: Mapping[Partition, Position]) -> None:
        """Accept all messages below the positions in one transaction, and wait for its outcome."""
        self.check_owned(positions)
        taken = {each: self._readings[each].taken for each in positions if each in self._readings}
        self._accept({each: [*found.below(positions[each].offset), *found.dropped] for each, found in taken.items()})

    def close(self) -> None:
        self._readings.clear()
        self._waiting.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> "JmsConnection":
        self._notice_losses()
        if self._connection is None:
            self._connection = self._connect(self._settings)
        return self._connection

    def _receive(self, named: QueuePartition) -> "ReceivingLink":
        settings = self._settings
        return self._connected().receive(named.queue, named.selector, settings.window, settings.max_value_bytes)

    def _is_served(self, partition: Partition) -> bool:
        if partition not in self._named or not self._named[partition].is_exclusive:
            return partition in self._named
        reading = self._readings.get(partition)
        link = self._waiting.get(partition) if reading is None else reading.link
        return link is not None and link.has_served

    def _wait_for_exclusive(self) -> None:
        """Open the links of exclusive queues. While the broker does not let one be opened, its partition is not assigned.

        Raises:
            TransportWithheld, TransportRefused: A queue is refused, and this worker reads no other one.
            TransportUnavailable: The broker does not answer.
        """
        self._unopened = {}
        for name, each in self._named.items():
            if each.is_exclusive and name not in self._readings and name not in self._waiting:
                try:
                    self._waiting[name] = self._receive(each)
                except (TransportWithheld, TransportRefused) as error:
                    self._unopened[name] = error
        if self._unopened and not (self._readings or self._waiting):
            raise next(iter(self._unopened.values()))

    def _notice_losses(self) -> None:
        is_lost = self._connection is not None and self._connection.is_lost
        gone = [each for each, reading in self._readings.items() if is_lost or reading.link.is_detached]
        for each in gone:
            _LOG.warning("%s is taken over again: its link to the broker was lost", self._named[each])
            del self._readings[each]
        self._left_out.update(gone)
        self._waiting = {each: link for each, link in self._waiting.items() if not (is_lost or link.is_detached)}
        if is_lost:
            self.close()

    def _wait(self, readable: Collection[Partition], timeout_ms: int) -> None:
        """Wait until a message has come to a readable partition, a link was lost, the time is up, or for a wake."""
        connection, until = self._connection, monotonic() + timeout_ms / 1000
        links = [self._readings[each].link for each in readable]
        watched = [each.link for each in self._readings.values()] + list(self._waiting.values())
        if connection is None:
            self._woken.wait(timeout_ms / 1000)  # Nothing can come before a takeover has made a connection.
            return
        while (remaining := until - monotonic()) > 0:
            connection.arrived.clear()
            # A wake sets the first event before the second one, so it is seen here, or ends the wait.
            if self._woken.is_set() or connection.is_lost:
                return
            if any(each.waiting for each in links) or any(each.is_detached for each in watched):
                return
            connection.arrived.wait(remaining)

    def _ends(self) -> tuple[dict[Partition, int], dict[Partition, int]]:
        known, log_ends = {}, {}
        for name, reading in self._readings.items():
            # Those of an earlier owner's messages that wait here get no offset.
            is_known = reading.link.is_caught_up and not (reading.link.waiting and reading.taken.has_earlier)
            end = reading.next_offset + reading.link.waiting
            log_ends[name] = end if is_known else end + 1
            if is_known:
                known[name] = end
        return known, log_ends

    def _take(self, readable: list[Partition], max_records: int) -> tuple[list[Record], dict[Partition, int]]:
        """Take a share from each partition, and again from those that have more, until nothing remains or the room is used up."""
        self._turn += 1
        first = self._turn % max(1, len(readable))
        turn, records, room = readable[first:] + readable[:first], list[Record](), _POLL_BYTES
        moved: dict[Partition, int] = {}
        while (turn := [each for each in turn if self._readings[each].link.waiting]) and len(records) < max_records and room > 0:
            share = max(1, (max_records - len(records)) // len(turn))
            for name in turn:
                for record in self._take_from(name, min(share, max_records - len(records))):
                    records.append(record)
                    room -= record.size
                    moved[name] = record.origin.offset + 1
        return records, moved

    def _take_from(self, name: Partition, share: int) -> list[Record]:
        reading, records = self._readings[name], list[Record]()
        settings = self._settings
        while reading.link.waiting and len(records) < share:
            number, raw, message = reading.link.take()
            reading.has_taken = True
            digest = digest_of(message, raw)
            if reading.taken.drop_known(number, digest):
                continue
            origin = Origin(name, reading.next_offset)
            needs_id = settings.message_id is Missing.REQUIRED
            records.append(read_record(origin, message, raw, settings.max_value_bytes, needs_id=needs_id))
            reading.taken.take(Taken(reading.next_offset, number, digest))
            reading.next_offset += 1
        return records

    def _drop_what_came_again(self) -> None:
        """Accept what an earlier owner has handled. If that fails, everything comes again; what was taken is returned first."""
        dropped = {name: list(reading.taken.dropped) for name, reading in self._readings.items() if reading.taken.dropped}
        if dropped:
            try:
                self._accept(dropped)
            except TransportUnavailable as error:
                _LOG.warning("messages that came again are not accepted yet: %s", error)
        for reading in self._readings.values():
            is_over = reading.link.is_caught_up and monotonic() - reading.since > _EARLIER_SECONDS
            if reading.taken.has_earlier and is_over:
                reading.taken.forget_earlier()

    def _accept(self, numbers: Mapping[Partition, Collection[int]]) -> None:
        wanted = {name: each for name, each in numbers.items() if each}
        if not wanted:
            return
        connection, links = self._connection, {name: self._readings[name].link for name in wanted}
        assert connection is not None, "messages were taken through it"
        what = ", ".join(str(self._named[each]) for each in wanted)

        def accept(io: "Io") -> None:
            transaction = io.transaction()
            for name, each in wanted.items():
                links[name].accept_all(each, transaction)
            transaction.commit()
            io.wait(lambda: transaction.is_ended, f"the acknowledgement of {what}")
            if not transaction.is_committed:
                raise TransportUnavailable(f"{what}: the broker did not take the acknowledgement: {transaction.problem}")
            for name, each in wanted.items():
                links[name].give_credit(each)

        # A new connection has none of these messages: if this one is lost, so is the acknowledgement.
        seconds = 2 * self._settings.call_timeout_ms / 1000 + sum(map(len, wanted.values())) / _MESSAGES_PER_SECOND
        connection.call(accept, seconds)
        for name, each in wanted.items():
            self._readings[name].taken.note_accepted(each)
