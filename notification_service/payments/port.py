"""The interfaces of handlers that read lookups, and of those that users write."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from notification_service.payments.enrichment import Enrichment
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.payment_data import PaymentData
from resequencer.clock import Instant
from resequencer.handler import Handler, Marks


class VersionedHandler(Handler, Protocol):
    """A handler that uses one version of the lookups."""

    def with_lookups(self, enrichment: Enrichment) -> "VersionedHandler":
        """Return a handler for another version. Do not use this handler after its version was closed."""
        ...


class Message(msgspec.Struct, frozen=True, gc=False):
    """A notification of a user's own handler. The service adds the id, the key and the headers.

    `process_object` is the index of the envelope's process object, from 0. It determines the notification's id, so there is at
    most one message for each process object. `status` is an ISO code (`ACSP`), under which the notification is counted.
    """

    process_object: int
    status: str
    value: bytes


class UsersHandler(Protocol):
    """A user's own handler, `package.module:Class`. It is created once in each worker, with the `HandlerSettings`."""

    def handle(
        self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant, lookups: Enrichment
    ) -> Iterable[Message]:
        """Return all messages of the envelope. `lookups` are of the current release, and may be used only during this call.

        It may be `async def`, also with `yield`: then it is called beside the worker's thread, for several units at a time.

        Raises:
            DependencyUnavailable, TransientError, PermanentError: As in `Handler`. Any other exception is a PermanentError.
        """
        ...
