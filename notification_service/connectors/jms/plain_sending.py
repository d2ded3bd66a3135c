"""The XMS sink's work in the thread of its connection: messages without a transaction."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from notification_service.connectors.jms.errors import to_transport_error
from notification_service.connectors.jms.messages import Outgoing
from notification_service.connectors.jms.sending import await_outcomes, is_closed, limit_of
from notification_service.connectors.jms.transaction import Outcomes, SenderHandler, is_taken, to_message

if TYPE_CHECKING:
    from notification_service.connectors.jms.connection import Io


class PlainSending:
    """The links of a sink. All calls are made in the thread, with its `Io`. The first `taken` messages are with the broker."""

    def __init__(self) -> None:
        self._senders: dict[str, Any] = {}
        self.taken = 0

    def forget(self) -> None:
        self._senders.clear()

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

    def _sender(self, io: "Io", queue: str) -> Any:
        if queue not in self._senders or is_closed(self._senders[queue]):
            self._senders.pop(queue, None)
            self._senders[queue] = io.open_sender(queue, SenderHandler(), is_queue=True)
        return self._senders[queue]


def _is_taken(delivery: Any) -> bool:
    return bool(delivery.remote_state) and is_taken(delivery)
