"""The interface of handlers."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.fact import Fact
from domain.notification import Notification
from resequencer.handlers.enrichment import Enrichment
from resequencer.payment_data import PaymentData


class Marks(msgspec.Struct, frozen=True, gc=False):
    """The marks of a handled envelope, for the headers of its notifications.

    `incomplete` is what was missing when a deadline or a bound released it (`PAIN_001,customData:BusinessData`,
    `sequence:3`), None otherwise. `late` is true if a later envelope of its flow (SEQUENCE: of its unit) was handled before.
    With `ordered` an operator's order released it incomplete.
    """

    incomplete: str | None = None
    late: bool = False
    ordered: bool = False


UNMARKED = Marks()
"""The marks of an envelope in its order."""


class Handled(msgspec.Struct, frozen=True, gc=False):
    """The result of an envelope: a notification per process object that has a setting, in the order of the process objects.

    `unmatched` counts the process objects without a row in the settings. `suppressed` counts those with a row that suppresses
    the notification, and those whose status the customer does not want. `facts` has the status of each process object that is
    not unmatched, in the same order, if the handler is told to make facts.
    """

    notifications: tuple[Notification, ...] = ()
    unmatched: int = 0
    suppressed: int = 0
    facts: tuple[Fact, ...] = ()


class Handler(Protocol):
    """Makes notifications of an envelope's process objects. Called again for the same envelope after a transient error."""

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """Handle the whole envelope or nothing of it.

        Raises:
            DependencyUnavailable: A server that the handler calls does not answer; the call is repeated later.
            TransientError: The same call may succeed later.
            PermanentError: The same call can never succeed; the envelope becomes a dead letter.
        """
        ...


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

        Raises:
            DependencyUnavailable, TransientError, PermanentError: As in `Handler`. Any other exception is a PermanentError.
        """
        ...
