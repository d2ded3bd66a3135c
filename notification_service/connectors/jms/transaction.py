"""A transaction of AMQP 1.0: what is accepted and sent in it happens together, or not at all."""

from collections.abc import Sequence
from typing import Any

from proton import Delivery, Message
from proton.handlers import MessagingHandler, TransactionHandler

from notification_service.connectors.jms.messages import Outgoing

_TRANSACTIONAL = 0x34
_ACCEPTED = 0x24


class SenderHandler(MessagingHandler):
    """Notes nothing: who sends waits for the states of the deliveries, and sees that the link is closed."""

    def __init__(self) -> None:
        super().__init__(auto_settle=False)

    def on_link_error(self, event: Any) -> None:
        event.link.close()

    def on_link_closing(self, event: Any) -> None:
        event.link.close()


class Transaction(MessagingHandler, TransactionHandler):
    """Used in the thread of the connection alone, until it is committed or given up with the connection."""

    def __init__(self, container: Any, connection: Any) -> None:
        super().__init__(auto_settle=False)
        # The client keeps the handler of a connection's first transaction, and would tell it what comes of all later ones.
        self._transaction = container.declare_transaction(connection, handler=None, settle_before_discharge=True)
        self._transaction.handler = self
        self.is_declared = False
        self.is_committed: bool | None = None
        """None until the broker has answered whether it is."""

    @property
    def is_ended(self) -> bool:
        return self.is_committed is not None

    @property
    def problem(self) -> Any:
        """The condition with which the broker refused to commit."""
        return self._transaction._discharge.remote.condition  # noqa: SLF001 - The client does not tell it otherwise.

    def accept(self, delivery: Any) -> None:
        self._transaction.accept(delivery)

    def send(self, sender: Any, outgoing: Outgoing) -> Any:
        """Send a message, and return its delivery, which has a state once the broker has it.

        The client keeps back what exceeds the link's credit. A commit before every delivery has its state would leave that out.
        """
        return self._transaction.send(sender, to_message(outgoing))

    def commit(self) -> None:
        """Ask the broker to commit; the answer is in `is_committed`."""
        self._transaction.commit()

    def abort(self) -> None:
        """Ask the broker to undo everything; `is_committed` is False then."""
        self._transaction.abort()

    def on_transaction_declared(self, _: Any) -> None:
        self.is_declared = True

    def on_transaction_declare_failed(self, _: Any) -> None:
        raise ConnectionError("the broker refused to begin a transaction")

    def on_transaction_committed(self, _: Any) -> None:
        self.is_committed = True

    def on_transaction_aborted(self, _: Any) -> None:
        self.is_committed = False

    def on_transaction_commit_failed(self, _: Any) -> None:
        self.is_committed = False


class Outcomes:
    """The states of deliveries, which come in any order. Asked again and again, each is looked at once more at most."""

    def __init__(self, deliveries: Sequence[Any]) -> None:
        self._deliveries = deliveries
        self.known = 0

    def look(self) -> bool:
        """Look at what has come since; return whether all states are known."""
        while self.known < len(self._deliveries) and self._deliveries[self.known].remote_state:
            self.known += 1
        return self.known == len(self._deliveries)

    def find_refused(self) -> tuple[int, Any] | None:
        """Return the place of the first delivery that the broker refused, with the condition; None if it took all."""
        for at, each in enumerate(self._deliveries):
            if not is_taken(each):
                return at, each.remote.condition
        return None


def to_message(outgoing: Outgoing) -> Message:
    message = Message(
        id=outgoing.id,
        durable=True,
        properties=dict(outgoing.properties),
        body=outgoing.body,
        # Bytes are a section of data, which JMS shows as a BytesMessage; text is a TextMessage.
        inferred=isinstance(outgoing.body, bytes),
    )
    if outgoing.key is not None:
        message.correlation_id = outgoing.key
    return message


def is_taken(delivery: Any) -> bool:
    """Whether the broker has accepted the message, be it in a transaction. It must have a state."""
    state = int(delivery.remote_state)
    if state != _TRANSACTIONAL:
        return state == int(Delivery.ACCEPTED)
    data = delivery.remote.data
    outcome = data[1] if data and len(data) > 1 else None
    return outcome is None or int(getattr(outcome, "descriptor", _ACCEPTED)) == _ACCEPTED
