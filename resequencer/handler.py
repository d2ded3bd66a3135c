"""What a turn asks outside the core: the handler of each envelope, and how late the events of a flow come."""

from typing import Protocol

import msgspec

from resequencer.clock import Instant
from resequencer.envelope import DataEnvelope
from resequencer.notification import Fact, Notification
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


class Profiles(Protocol):
    """The flow profiles of one release of the lookups. The same release gives the same answers, and a cycle uses one release."""

    def find_lateness_ms(self, entity: str | None, flow: str) -> int | None:
        """Return how long, in milliseconds, 99.9 % of this flow's waiting envelopes waited at most for what they overtook.

        The profile of the processing entity counts, else the one for any entity. None if there is no profile, or if too few
        envelopes had waited.
        """
        ...
