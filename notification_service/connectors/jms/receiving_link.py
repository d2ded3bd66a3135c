"""A link from a queue: the messages that have come, and those that are not settled yet.

Credit counts messages, whatever their size. So the link has a session of its own, whose window counts bytes: while those that
have come and are not taken exceed `_MAX_BYTES`, nothing is read, the window closes, and the broker waits. Of a message beyond
the limit all but the beginning is discarded while it arrives.
"""

from collections import deque
from collections.abc import Callable, Collection
from threading import Event
from time import monotonic
from typing import Any

from proton import Delivery, Endpoint, Message
from proton.handlers import MessagingHandler

from notification_service.connectors.jms.arriving_message import ArrivingMessage, Beginning

SESSION_BYTES = 8 << 20
"""About how many bytes the client takes from the broker before they are read."""

_MAX_BYTES = 16 << 20
"""About how many bytes of messages are held that are not taken. One message may exceed it."""

_FREE_SECONDS = 1.0


class ReceivingLink(MessagingHandler):
    """Methods that begin with `on_`, and those that say so, are called in the thread of the connection; the others by the worker.

    A message is named by a number of its own, from 0. `window` is the most messages that are not settled. Of one with more than
    about `max_value_bytes` only a `Beginning` is kept. `post` lets the thread call a function soon.
    """

    def __init__(self, window: int, max_value_bytes: int, arrived: Event, post: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        # The client's own reader, which would take a whole message at once, and its handler for senders.
        del self.handlers[1:]
        self._window = window
        self._max_value_bytes = max_value_bytes
        self._arrived = arrived
        self._post = post
        self._came: deque[tuple[int, bytes | Beginning, int]] = deque()
        self._link: Any = None
        self._deliveries: dict[int, Any] = {}
        self._next = 0
        self._arriving: ArrivingMessage | None = None
        # Each of the two is written by one thread alone.
        self._bytes_come = 0
        self._bytes_taken = 0
        self._is_full = False
        self._free_since: float | None = None
        self.is_detached = False
        self.has_served = False
        """Whether a message has come: the broker serves this consumer."""

    @property
    def waiting(self) -> int:
        """How many messages have come and are not taken."""
        return len(self._came)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything has come that the queue held a second ago: the link had room for more all the time since."""
        free_since = self._free_since
        return free_since is not None and monotonic() - free_since >= _FREE_SECONDS

    def take(self) -> tuple[int, bytes | Beginning, Any]:
        """Return the next message that has come: its number, its bytes or what is kept of them, and the message.

        The message is None if it cannot be decoded. That of a `Beginning` has no body.
        """
        number, raw, held = self._came.popleft()
        self._bytes_taken += held
        if self._is_full and self._has_room():
            self._post(self._read_on)
        message, readable = Message(), raw.head if isinstance(raw, Beginning) else raw
        if not readable and isinstance(raw, Beginning):
            return number, raw, message
        try:
            message.decode(readable)
        except Exception:  # noqa: BLE001 - Whatever the client raises about foreign bytes, this message cannot be read.
            return number, raw, None
        return number, raw, message

    def attach(self, link: Any) -> None:
        """In the thread: take messages from now on."""
        self._link = link
        self._note_room()
        link.flow(self._window)

    def accept_all(self, numbers: Collection[int], transaction: Any) -> None:
        """In the thread: accept these messages within the transaction."""
        for each in numbers:
            transaction.accept(self._deliveries[each])

    def settle(self, numbers: Collection[int]) -> None:
        """In the thread: accept these messages, which the broker does not confirm, and let as many more come."""
        for each in numbers:
            delivery = self._deliveries[each]
            delivery.update(Delivery.ACCEPTED)
            delivery.settle()
        self.give_credit(numbers)

    def give_credit(self, numbers: Collection[int]) -> None:
        """In the thread, once they are accepted for certain: let as many more come."""
        for each in numbers:
            del self._deliveries[each]
        self._note_room()
        if not self.is_detached:
            self._link.flow(len(numbers))

    def detach(self, io: Any) -> None:
        """In the thread, while the worker waits: close the link. What is not settled goes back to its place in the queue."""
        link = self._link
        if link is not None and not self.is_detached:
            self.is_detached = True
            link.close()
            io.wait(lambda: not link.state & Endpoint.REMOTE_ACTIVE, "closing a link")
            link.session.close()
        self.forget()
        io.not_on_end(self.forget)
        self._came.clear()

    def forget(self) -> None:
        """In the thread: let go of what belongs to the connection."""
        self._link = None
        self._deliveries.clear()
        self._arriving = None
        self._free_since = None
        self.is_detached = True

    def on_delivery(self, event: Any) -> None:
        came = self._next
        self._read_on()
        if self._next > came:
            event.container.yield_()

    def _read_on(self) -> None:
        """In the thread: read what has arrived, unless too much of it is not taken yet."""
        link = self._link
        if link is None or self.is_detached:
            return
        while (delivery := link.current) is not None:
            # The worker looks at the mark after it has taken a message, so the mark comes before this look at the room.
            self._is_full = True
            if not self._has_room():
                break
            self._is_full = False
            if delivery.aborted:
                self._arriving = None
                delivery.settle()
                link.flow(1)  # It has used a credit, and nothing of it is acknowledged later.
            elif not self._read(link, delivery):
                break
        self._note_room()
        if not self._is_full:
            link.flow(0)  # The client opens a closed window again with the next flow only.

    def _read(self, link: Any, delivery: Any) -> bool:
        """Read what has arrived of a message; return whether that is all of it."""
        if self._arriving is None:
            self._arriving = ArrivingMessage(self._max_value_bytes)
        if delivery.pending:
            self._arriving.add(link.recv(delivery.pending))
        if delivery.partial:
            return False
        arrived, held = self._arriving.end(), self._arriving.held
        self._arriving = None
        link.advance()
        self._deliveries[self._next] = delivery
        self._bytes_come += held
        self._came.append((self._next, arrived, held))
        self._next += 1
        self.has_served = True
        if not self._arrived.is_set():
            self._arrived.set()
        return True

    def _has_room(self) -> bool:
        """Whether more may be read. One message may be as large as it likes, within the limit of a value."""
        arriving = self._arriving
        here = self._bytes_come - self._bytes_taken
        return not here or here + (0 if arriving is None else arriving.held) < _MAX_BYTES

    def _note_room(self) -> None:
        """In the thread: note since when nothing keeps the broker from sending more."""
        if self.is_detached or self._is_full or self._arriving is not None or len(self._deliveries) >= self._window:
            self._free_since = None
        elif self._free_since is None:
            self._free_since = monotonic()

    def on_link_error(self, event: Any) -> None:
        self._note_closed(event)

    def on_link_closing(self, event: Any) -> None:
        self._note_closed(event)

    def _note_closed(self, event: Any) -> None:
        """The broker has closed the link: its queue was deleted, or an administrator did it."""
        self.is_detached = True
        self._free_since = None
        self._arrived.set()
        event.link.close()
        event.link.session.close()
        event.container.yield_()
