"""The sink's work in the thread of its connection: markers and records in one transaction."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from proton import Delivery, Endpoint, Message
from proton.handlers import MessagingHandler

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.jms.connection import TOO_LARGE, to_transport_error
from notification_service.connectors.jms.messages import PARTITION_PROPERTY, Marker, Outgoing, decode_marker, selector_of
from notification_service.connectors.jms.transaction import Outcomes, SenderHandler, Transaction, is_taken, to_message
from resequencer.errors import ResequencerError
from resequencer.record import Partition

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io


_STEP = 1_000
"""How many messages the broker must take within the time of an answer."""

_TRIES, _TRY_SECONDS = 6, 0.1
_DUPLICATE_ID = "_AMQ_DUPL_ID"
"""The property by which Artemis recognises a message that it has had. So two owners that begin at once make one marker."""


class Fetched(NamedTuple):
    """A marker that was fetched from its queue. `held` is its delivery."""

    id: str
    marker: Marker
    held: Any


class ToSend(NamedTuple):
    """Messages with their queues, by order, and the markers to put in place of those that were fetched, with their new ids."""

    messages: Sequence[tuple[str, Outgoing]]
    markers: Mapping[Partition, tuple[str, Marker]]


class Progress:
    """How far a publication came: whether the markers were read, and whether a commit may have reached the broker."""

    def __init__(self) -> None:
        self.fetched: Mapping[Partition, str] = {}
        self.may_be_committed = False


class NotTaken(ResequencerError):
    """The broker refuses the message with this id for its size; nothing was sent."""

    def __init__(self, id_: str, problem: str) -> None:
        super().__init__(problem)
        self.id = id_


class _MarkerHandler(MessagingHandler):
    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.came: list[tuple[Message, Any]] = []

    def on_message(self, event: Any) -> None:
        self.came.append((event.message, event.delivery))

    def on_link_error(self, event: Any) -> None:
        event.link.close()

    def on_link_closing(self, event: Any) -> None:
        event.link.close()


class _Senders:
    """The links to queues, each opened by the first message for it. With `is_queue` they carry the capability `queue`."""

    is_queue = False

    def __init__(self) -> None:
        self._senders: dict[str, Any] = {}

    def forget(self) -> None:
        self._senders.clear()

    def _sender(self, io: "Io", queue: str) -> Any:
        if queue not in self._senders or is_closed(self._senders[queue]):
            self._senders.pop(queue, None)
            self._senders[queue] = io.open_sender(queue, SenderHandler(), is_queue=self.is_queue)
        return self._senders[queue]


class Sending(_Senders):
    """The links of a sink. All calls are made in the thread, with its `Io`."""

    def __init__(self, markers: str) -> None:
        super().__init__()
        self._markers = markers
        self._receivers: dict[Partition, tuple[Any, _MarkerHandler]] = {}

    def forget(self) -> None:
        super().forget()
        self._receivers.clear()

    def fetch(self, io: "Io", partitions: Collection[Partition], tries: int = _TRIES) -> dict[Partition, Fetched]:
        """Return the markers that are in the queue. Each is held until its delivery is settled or released.

        Another owner that finds a marker which it does not know gives it back within moments.
        """
        found: dict[Partition, Fetched] = {}
        for attempt in range(tries):
            if attempt:
                io.pause(_TRY_SECONDS)
            found |= {each: one for each in partitions if each not in found and (one := self._fetch(io, each)) is not None}
            if len(found) == len(partitions):
                break
        return found

    def make_first(self, io: "Io", partition: Partition, id_: str) -> None:
        """Send a partition's first marker. A broker that has had one before drops it."""
        sender = self._sender(io, self._markers)
        first = _marker_message(partition, id_, Marker())
        first = first._replace(properties={**first.properties, _DUPLICATE_ID: f"{self._markers}/{partition}"})
        delivery = sender.send(to_message(first))
        io.wait(lambda: delivery.remote_state or is_closed(sender), f"queue {self._markers}")
        if delivery.remote_state != Delivery.ACCEPTED:
            raise to_transport_error(f"queue {self._markers}", delivery.remote.condition or sender.remote_condition)
        delivery.settle()

    def release(self, found: Mapping[Partition, Fetched]) -> None:
        """Give markers back to the queue unchanged."""
        for each in found.values():
            each.held.update(Delivery.RELEASED)
            each.held.settle()

    def commit(self, io: "Io", found: Mapping[Partition, Fetched], to_send: ToSend, progress: Progress) -> None:
        """Send everything in one transaction, in which the markers found are taken away.

        Raises:
            NotTaken: A message is too large for the broker; nothing was sent.
            TransportUnavailable: The transaction may be committed if `progress` says so, else it is not.
            TransportRefused: A queue does not take a message.
        """
        senders = {queue: self._sender(io, queue) for queue in {*(queue for queue, _ in to_send.messages), self._markers}}
        try:
            for queue, each in to_send.messages:
                _refuse_too_large(queue, each, senders[queue])
        except NotTaken:
            self.release(found)
            raise
        transaction = io.transaction()
        for partition in to_send.markers:
            transaction.accept(found[partition].held)
        deliveries = [transaction.send(senders[queue], each) for queue, each in to_send.messages]
        for partition, (id_, marker) in to_send.markers.items():
            deliveries.append(transaction.send(senders[self._markers], _marker_message(partition, id_, marker)))
        await_outcomes(io, deliveries, senders.values())
        _check(deliveries, to_send, self._markers, lambda: self._undo(io, transaction))
        progress.may_be_committed = True
        transaction.commit()
        io.wait(lambda: transaction.is_ended, "the transaction")
        if not transaction.is_committed:
            raise TransportUnavailable(f"the broker did not commit: {transaction.problem}")
        for each in deliveries:
            each.settle()

    def _undo(self, io: "Io", transaction: Transaction) -> None:
        transaction.abort()
        io.wait(lambda: transaction.is_ended, "the end of a transaction")

    def _fetch(self, io: "Io", partition: Partition) -> Fetched | None:
        link, handler = self._receiver(io, partition)
        # The broker answers with the message or, if there is none now, takes the credit back.
        link.drain(1)
        io.wait(lambda: handler.came or not link.credit or is_closed(link), f"the marker of {partition}")
        if is_closed(link):
            del self._receivers[partition]
            raise to_transport_error(f"queue {self._markers}", link.remote_condition)
        if not handler.came:
            return None
        message, held = handler.came.pop()
        marker = decode_marker(message.body)
        if marker is None or message.id is None:
            held.update(Delivery.RELEASED)
            held.settle()
            problem = f"the message for {partition} is no marker. Another program has sent it: remove it"
            raise TransportRefused(f"queue {self._markers}", problem)
        return Fetched(str(message.id), marker, held)

    def _receiver(self, io: "Io", partition: Partition) -> tuple[Any, _MarkerHandler]:
        if partition not in self._receivers or is_closed(self._receivers[partition][0]):
            handler = _MarkerHandler()
            self._receivers[partition] = io.open_receiver(self._markers, selector_of(partition), handler), handler
        return self._receivers[partition]


def await_outcomes(io: "Io", deliveries: Sequence[Any], senders: Collection[Any]) -> None:
    """Wait until the broker has each message. As long as it takes some, it is given time.

    Raises:
        TransportUnavailable: It takes no more, or a link is closed; as `to_transport_error`.
    """
    outcomes = Outcomes(deliveries)
    while not outcomes.look():
        io.wait(partial(_has_progress, outcomes, outcomes.known, senders), "sending")
        closed = next((each for each in senders if is_closed(each)), None)
        if closed is not None:
            raise to_transport_error(f"queue {closed.target.address}", closed.remote_condition)


def _has_progress(outcomes: Outcomes, before: int, senders: Collection[Any]) -> bool:
    return outcomes.look() or outcomes.known >= before + _STEP or any(map(is_closed, senders))


def _check(deliveries: Sequence[Any], to_send: ToSend, markers: str, undo: Callable[[], None]) -> None:
    refused = Outcomes(deliveries).find_refused()
    if refused is None:
        return
    at, condition = refused
    with suppress(TransportUnavailable):
        undo()
    queue = to_send.messages[at][0] if at < len(to_send.messages) else markers
    if condition is not None and condition.name == TOO_LARGE and at < len(to_send.messages):
        raise NotTaken(to_send.messages[at][1].id, f"queue {queue} does not take a message of this size")
    raise to_transport_error(f"queue {queue}", condition)


def _refuse_too_large(queue: str, outgoing: Outgoing, sender: Any) -> None:
    limit = limit_of(sender)
    if limit and (size := size_of(outgoing)) > limit:
        raise NotTaken(outgoing.id, f"the message takes {size} bytes, but queue {queue} accepts {limit}")


def size_of(outgoing: Outgoing) -> int:
    """Return the bytes of a message."""
    return len(to_message(outgoing).encode())


def limit_of(sender: Any) -> int:
    """Return the largest message that the broker takes through this link, in bytes; 0 for any."""
    return int(sender.remote_max_message_size)


def _marker_message(partition: Partition, id_: str, marker: Marker) -> Outgoing:
    return Outgoing(id_, None, {PARTITION_PROPERTY: str(partition)}, marker.encode())


def is_closed(link: Any) -> bool:
    return bool(link.state & Endpoint.REMOTE_CLOSED)


class PlainSending(_Senders):
    """The links of a sink. All calls are made in the thread, with its `Io`. The first `taken` messages are with the broker."""

    is_queue = True

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0

    def limits(self, io: "Io", queues: Collection[str]) -> Mapping[str, int]:
        """Open the links, and return the largest message that the broker takes through each, in bytes; 0 for any."""
        return {queue: limit_of(self._sender(io, queue)) for queue in queues}

    def send(self, io: "Io", messages: Sequence[tuple[str, Outgoing]]) -> None:
        """Send all, and wait until the broker has taken each. As long as it takes some, it is given time.

        Raises:
            TransportUnavailable: The broker does not answer. Messages that are not counted may be with it all the same.
            TransportRefused: A queue does not take a message.
        """
        self.taken = 0
        senders = {queue: self._sender(io, queue) for queue in {queue for queue, _ in messages}}
        deliveries = [senders[queue].send(to_message(each)) for queue, each in messages]
        try:
            await_outcomes(io, deliveries, senders.values())
            refused = Outcomes(deliveries).find_refused()
            if refused is not None:
                raise to_transport_error(f"queue {messages[refused[0]][0]}", refused[1])
        finally:
            self.taken = next((at for at, each in enumerate(deliveries) if not _is_taken(each)), len(deliveries))
            for each in deliveries:
                each.settle()


def _is_taken(delivery: Any) -> bool:
    return bool(delivery.remote_state) and is_taken(delivery)
