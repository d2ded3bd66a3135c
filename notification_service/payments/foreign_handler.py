"""The adapter around a user's own handler: a failure costs only the envelope on which it occurs."""

from __future__ import annotations

from functools import partial
from typing import Any

from notification_service.payments.contract_headers import About, about_headers, contract_headers, version_headers
from notification_service.payments.enrichment import Enrichment
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.facts import NO_MEMBERSHIP, EnvelopeFacts
from notification_service.payments.iso20022.codes import TRANSACTION_STATUSES
from notification_service.payments.original import Originals
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.port import Message, UsersHandler
from resequencer.clock import Instant
from resequencer.errors import PermanentError, TooLarge, TransientError
from resequencer.handler import Handled, HandlerCall, Marks
from resequencer.notification import Fact, Notification, notification_id
from resequencer.users_code import FindWay, call_guarded, refuse_awaitable, within_the_turn


class ForeignHandler:
    """Makes notifications of the messages of the user's handler. Their ids and headers always follow the contract.

    A `TransientError` of the handler passes. Any other exception, and any unusable answer, becomes a `PermanentError`. If it
    `makes_facts`, there is a fact for each message, with the status of that. With a way to call it beside the turn there is a
    method `call` (`resequencer.handler.HandlerCall`), which takes the place of `handle`.
    """

    def __init__(
        self,
        handler: UsersHandler,
        name: str,
        enrichment: Enrichment,
        max_bytes: int,
        *,
        makes_facts: bool = False,
        find_way: FindWay = within_the_turn,
    ) -> None:
        """Raises TypeError if the handler has no method `handle`. Otherwise this would show only at the first envelope."""
        if not callable(getattr(handler, "handle", None)):
            raise TypeError("it has no method handle")
        self._handler = handler
        self._who = f"handler {name}"
        self._enrichment = enrichment
        self._max_bytes = max_bytes
        self._originals = Originals(enrichment, for_facts=True) if makes_facts else None
        self._version = version_headers(enrichment.version)
        self._with_lookups = partial(
            ForeignHandler, handler, name, max_bytes=max_bytes, makes_facts=makes_facts, find_way=find_way
        )
        self._way = find_way(handler.handle)
        self.call: HandlerCall | None = None if self._way is None else self._call

    def with_lookups(self, enrichment: Enrichment) -> ForeignHandler:
        """Return an adapter with other lookups around the same user's handler, which gets the lookups with each call."""
        return self._with_lookups(enrichment)

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Call the user's handler. Process objects without a message count as suppressed.

        Raises:
            TransientError: The handler asks to be called again.
            PermanentError: The handler failed, or its answer cannot be used.
            TooLarge: The messages together, or they with the facts, are too large.
        """
        messages = call_guarded(
            self._who,
            lambda: self._listed(self._handler.handle(envelope, data, marks, now, self._enrichment)),
            TransientError,
        )
        return self._handled(messages, envelope, data, marks)

    async def _call(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        assert self._way is not None, "only a handler that waits is called beside the turn"
        call = partial(self._handler.handle, envelope, data, marks, now, self._enrichment)
        return self._handled(await self._way(self._who, envelope, call, self._listed), envelope, data, marks)

    def _listed(self, answer: Any) -> list[Message]:
        try:
            return list(answer)
        except TypeError:
            refuse_awaitable(f"handle of {self._who}", answer)
            raise

    def _handled(self, messages: list[Message], envelope: DataEnvelope, data: PaymentData, marks: Marks) -> Handled:
        self._check(messages, envelope)
        of_envelope, notifications, facts = self._facts(envelope, data, marks), list[Notification](), list[Fact]()
        group = of_envelope.group_headers if of_envelope else ()
        for each in messages:
            identifier = notification_id(envelope.unit, envelope.envelope_id, each.process_object)
            of = envelope.process_objects[each.process_object]
            about = About(of.event_name or "", of.process_flow_name or "", each.status, envelope.processing_entity)
            headers = contract_headers(identifier, envelope, about_headers(about), marks, group)
            # A subclass of bytes, such as numpy's, could not be stored.
            value, origin = b"".join((each.value,)), envelope.record.origin
            notifications.append(Notification(identifier, envelope.unit, each.status, value, headers + self._version, origin))
            if of_envelope is not None:
                facts.append(of_envelope.make(each.status, headers))
        self._refuse_too_much(messages, facts)
        suppressed = len(envelope.process_objects) - len(notifications)
        return Handled(tuple(notifications), suppressed=suppressed, facts=tuple(facts))

    def _facts(self, envelope: DataEnvelope, data: PaymentData, marks: Marks) -> EnvelopeFacts | None:
        """Return what makes the facts, if any are made.

        Payment data that cannot be read are no failure, because the user's handler may do without them: the payment then has no
        group and no amount.
        """
        if self._originals is None:
            return None
        try:
            membership = self._originals.get(data).membership
        except PermanentError:
            membership = NO_MEMBERSHIP
        return EnvelopeFacts(envelope, envelope.processing_entity, membership, marks)

    def _check(self, messages: list[Message], envelope: DataEnvelope) -> None:
        used = set[int]()
        for each in messages:
            flaw = _find_flaw(each, len(envelope.process_objects), used)
            if flaw is not None:
                raise PermanentError(f"{self._who} {flaw}")
            used.add(each.process_object)

    def _refuse_too_much(self, messages: list[Message], facts: list[Fact]) -> None:
        if sum([len(each.value) for each in messages]) + sum([each.size for each in facts]) > self._max_bytes:
            raise TooLarge(
                f"{self._who} made more than {self._max_bytes} bytes of notifications of one envelope; "
                "make less of it, or raise max-record-bytes to more than a quarter of what they take"
            )


def _find_flaw(message: Any, process_objects: int, used: set[int]) -> str | None:
    """Return why a message cannot be used, None if it can. Checks all types, because the message comes from foreign code."""
    if not isinstance(message, Message):
        return f"answered a {type(message).__name__} among its messages; answer with Message"
    number: Any = message.process_object
    status: Any = message.status
    value: Any = message.value
    if type(number) is not int or not 0 <= number < process_objects:
        return f"made a message of process object {number!r:.50}, the envelope has {process_objects}, counted from 0"
    if number in used:
        return f"made two messages of process object {number}; a notification's id is that of its process object"
    if type(status) is not str or status not in TRANSACTION_STATUSES:
        known = ", ".join(sorted(TRANSACTION_STATUSES))
        return f"gave the status {status!r:.50}, which is no ISO code; use one of {known}"
    if not isinstance(value, bytes):
        return f"gave a {type(value).__name__} as value instead of bytes"
    return None
