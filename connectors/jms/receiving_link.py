"""A link from a queue: the messages that have come, and those that are not settled yet."""

from collections import deque
from collections.abc import Collection
from threading import Event
from time import monotonic
from typing import Any

from proton import Delivery, Endpoint, Message
from proton.handlers import MessagingHandler

_FREE_SECONDS = 1.0


class ReceivingLink(MessagingHandler):
    """Methods that begin with `on_`, and those that say so, are called in the thread of the connection; the others by the worker.

    A message is named by a number of its own, from 0. `window` is the most messages that are not settled.
    """

    def __init__(self, window: int, arrived: Event) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self._window = window
        self._arrived = arrived
        self._came: deque[tuple[int, bytes]] = deque()
        self._link: Any = None
        self._deliveries: dict[int, Any] = {}
        self._next = 0
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
        """Whether everything has come that the queue held a second ago: the link had free credit all the time since."""
        free_since = self._free_since
        return free_since is not None and monotonic() - free_since >= _FREE_SECONDS

    def take(self) -> tuple[int, bytes, Any]:
        """Return the next message that has come: its number, its bytes, and the message; None if it cannot be decoded."""
        number, raw = self._came.popleft()
        message = Message()
        try:
            message.decode(raw)
        except Exception:  # noqa: BLE001 - Whatever the client raises about foreign bytes, this message cannot be read.
            return number, raw, None
        return number, raw, message

    def attach(self, link: Any) -> None:
        """In the thread: take messages from now on."""
        self._link, self._free_since = link, monotonic()
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
        if self._free_since is None:
            self._free_since = monotonic()
        if not self.is_detached:
            self._link.flow(len(numbers))

    def detach(self, io: Any) -> None:
        """In the thread, while the worker waits: close the link. What is not settled goes back to its place in the queue."""
        link = self._link
        if link is not None and not self.is_detached:
            self.is_detached = True
            link.close()
            io.wait(lambda: not link.state & Endpoint.REMOTE_ACTIVE, "closing a link")
        self.forget()
        io.not_on_end(self.forget)
        self._came.clear()

    def forget(self) -> None:
        """In the thread: let go of what belongs to the connection."""
        self._link = None
        self._deliveries.clear()
        self._free_since = None
        self.is_detached = True

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if delivery.aborted:
            delivery.settle()
        elif delivery.readable and not delivery.partial:
            link = delivery.link
            raw = link.recv(delivery.pending)
            link.advance()
            self._deliveries[self._next] = delivery
            self._came.append((self._next, raw))
            self._next += 1
            self.has_served = True
            if len(self._deliveries) >= self._window:
                self._free_since = None
            if not self._arrived.is_set():
                self._arrived.set()
            event.container.yield_()

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
        event.container.yield_()
