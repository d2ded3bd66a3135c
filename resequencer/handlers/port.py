"""What the unit asks of its handlers."""

from typing import Protocol

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.notification import Notification
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
