"""What the unit asks of its handlers."""

from collections.abc import Iterable
from typing import Protocol

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.notification import Notification
from resequencer.handlers.enrichment import Enrichment
from resequencer.payment_data import PaymentData


class Marks(msgspec.Struct, frozen=True, gc=False):
    """How an envelope came to be handled: what the notification's headers have to say about it.

    `incomplete` is what was missing when a deadline or a bound released it (`PAIN_001,customData:BusinessData`,
    `sequence:3`), None otherwise. `late` is true when it follows a later one of its flow (SEQUENCE:
    of its unit) that was handled.
    """

    incomplete: str | None = None
    late: bool = False


class Handled(msgspec.Struct, frozen=True, gc=False):
    """What an envelope led to: a notification per process object that the settings know, in their order.

    `unmatched` counts the process objects without a row in the settings, `suppressed` those with a row that says so and those
    whose status the customer does not want: they notify nobody.
    """

    notifications: tuple[Notification, ...] = ()
    unmatched: int = 0
    suppressed: int = 0


class Handler(Protocol):
    """Turns an envelope's process objects into notifications. Called again for the same envelope after a transient failure."""

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        """All of the envelope or nothing.

        Raises:
            DependencyUnavailable: A server that it calls does not answer; the same call is made when it may be back.
            TransientError: The same call may succeed later.
            PermanentError: It never will; the envelope goes to the dead letters.
        """
        ...


class VersionedHandler(Handler, Protocol):
    """A handler that knows one version of the lookups."""

    def with_lookups(self, enrichment: Enrichment) -> "VersionedHandler":
        """The same with another version; this one must not be used any more once its version is closed."""
        ...


class Message(msgspec.Struct, frozen=True, gc=False):
    """A notification as a user's own handler says it; what makes it a record is the service's affair.

    `process_object` counts the envelope's from 0: it gives the notification its id, so there is at most one message of each.
    `status` is an ISO code (`ACSP`), under which it is counted.
    """

    process_object: int
    status: str
    value: bytes


class UsersHandler(Protocol):
    """A user's own handler, `package.module:Class`; made once in each worker, with the `HandlerSettings`."""

    def handle(
        self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant, lookups: Enrichment
    ) -> Iterable[Message]:
        """All messages of the envelope or none. `lookups` are of the current release, and may be asked during this call only.

        Raises:
            DependencyUnavailable, TransientError, PermanentError: As with `Handler`; anything else is a PermanentError.
        """
        ...
