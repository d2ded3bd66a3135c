"""A link that looks at the messages of a queue and takes none away."""

from collections.abc import Callable
from typing import Any

from proton import Message
from proton.handlers import MessagingHandler

_CREDIT = 1_000


class Browser(MessagingHandler):  # type: ignore[misc]
    """Gives each message to `take` with its place in the queue, from 1, in the thread of the connection.

    `problem` is what `take` has returned; then the rest is passed over.
    """

    def __init__(self, take: Callable[[int, Any], str | None]) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self._take = take
        self._link: Any = None
        self.count = 0
        self.problem: str | None = None

    def has_more_than(self, count: int) -> bool:
        return self.count > count

    def attach(self, link: Any) -> None:
        self._link = link
        link.flow(_CREDIT)

    def on_link_error(self, event: Any) -> None:
        """Close the link alone: by default the client closes the connection."""
        event.link.close()

    def on_link_closing(self, event: Any) -> None:
        event.link.close()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if not delivery.readable or delivery.partial:
            return
        raw = delivery.link.recv(delivery.pending)
        delivery.link.advance()
        delivery.settle()
        self.count += 1
        if self.problem is None:
            message = Message()
            message.decode(raw)
            self.problem = self._take(self.count, message)
        if self.count % (_CREDIT // 2) == 0:
            self._link.flow(_CREDIT // 2)
        event.container.yield_()
