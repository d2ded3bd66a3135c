"""The adapter around a user's own handler: a failure costs only the envelope on which it occurs."""

from __future__ import annotations

from typing import Any

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError, TooLarge, TransientError, words_of
from domain.notification import Notification, notification_id
from resequencer.handlers.contract_headers import About, contract_headers, version_headers
from resequencer.handlers.enrichment import Enrichment
from resequencer.handlers.iso20022.codes import TRANSACTION_STATUSES
from resequencer.handlers.port import Handled, Marks, Message, UsersHandler
from resequencer.payment_data import PaymentData


class ForeignHandler:
    """Makes notifications of the messages of the user's handler. Their ids and headers always follow the contract.

    A `TransientError` of the handler passes. Any other exception, and any unusable answer, becomes a `PermanentError`.
    """

    def __init__(self, handler: UsersHandler, name: str, enrichment: Enrichment, most_bytes: int) -> None:
        """Raises TypeError if the handler has no method `handle`. Otherwise this would show only at the first envelope."""
        if not callable(getattr(handler, "handle", None)):
            raise TypeError("it has no method handle")
        self._handler = handler
        self._name = name
        self._enrichment = enrichment
        self._most_bytes = most_bytes
        self._version = version_headers(enrichment.version)

    def with_lookups(self, enrichment: Enrichment) -> ForeignHandler:
        """Return an adapter with other lookups around the same user's handler, which gets the lookups with each call."""
        return ForeignHandler(self._handler, self._name, enrichment, self._most_bytes)

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Call the user's handler. Process objects without a message count as suppressed.

        Raises:
            TransientError: The handler asks to be called again.
            PermanentError: The handler failed, or its answer cannot be used.
            TooLarge: The messages together are too large.
        """
        try:
            messages = list(self._handler.handle(envelope, data, marks, now, self._enrichment))
        except (TransientError, KeyboardInterrupt):
            raise
        except BaseException as error:  # Foreign code may raise anything. That costs its envelope, not the worker.
            if type(error) is PermanentError:
                raise
            raise PermanentError(f"handler {self._name} raised {words_of(error)}") from error
        self._check(messages, envelope)
        made = tuple([self._notification(each, envelope, marks) for each in messages])
        return Handled(made, suppressed=len(envelope.process_objects) - len(made))

    def _check(self, messages: list[Message], envelope: DataEnvelope) -> None:
        told, room = set[int](), self._most_bytes
        for each in messages:
            flaw = _find_flaw(each, len(envelope.process_objects), told)
            if flaw is not None:
                raise PermanentError(f"handler {self._name} {flaw}")
            told.add(each.process_object)
            room -= len(each.value)
        if room < 0:
            raise TooLarge(
                f"handler {self._name} made more than {self._most_bytes} bytes of notifications of one envelope; "
                "make less of it, or raise max-record-bytes to more than a quarter of what they take"
            )

    def _notification(self, message: Message, envelope: DataEnvelope, marks: Marks) -> Notification:
        identifier = notification_id(envelope.unit, envelope.envelope_id, message.process_object)
        of = envelope.process_objects[message.process_object]
        about = About(of.event_name or "", of.process_flow_name or "", message.status, envelope.processing_entity)
        headers = contract_headers(identifier, envelope, about, marks) + self._version
        # A subclass of bytes, such as numpy's, could not be stored.
        value = b"".join((message.value,))
        return Notification(identifier, envelope.unit, message.status, value, headers, envelope.record.origin)


def _find_flaw(message: Any, process_objects: int, told: set[int]) -> str | None:
    """Return why a message cannot be used, None if it can. Checks all types, because the message comes from foreign code."""
    if not isinstance(message, Message):
        return f"answered a {type(message).__name__} among its messages; answer with Message"
    number: Any = message.process_object
    status: Any = message.status
    value: Any = message.value
    if type(number) is not int or not 0 <= number < process_objects:
        return f"told of process object {number!r:.50}, the envelope has {process_objects}, counted from 0"
    if number in told:
        return f"told of process object {number} twice; a notification's id is that of its process object"
    if type(status) is not str or status not in TRANSACTION_STATUSES:
        known = ", ".join(sorted(TRANSACTION_STATUSES))
        return f"gave the status {status!r:.50}, which is no ISO code; use one of {known}"
    if not isinstance(value, bytes):
        return f"gave a {type(value).__name__} as value instead of bytes"
    return None
