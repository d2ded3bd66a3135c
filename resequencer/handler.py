"""What a turn asks outside the core: the handler of each event, what keeps a unit's data, and how late events of a flow come."""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from resequencer.clock import Instant
from resequencer.notification import Fact, Notification


class Marks(msgspec.Struct, frozen=True, gc=False):
    """The marks of a handled envelope, for the headers of its notifications.

    `incomplete` is what was missing when a deadline or a bound released it (`sequence:3`, or names of parts with commas between
    them), None otherwise. `late` is true if a later envelope of its flow (SEQUENCE: of its unit) was handled before.
    With `ordered` an operator's order released it incomplete.
    """

    incomplete: str | None = None
    late: bool = False
    ordered: bool = False


UNMARKED = Marks()
"""The marks of an envelope in its order."""


class Handled(msgspec.Struct, frozen=True, gc=False):
    """The result of an envelope: its notifications, in order.

    `unmatched` counts what in the envelope the handler's settings do not know, and `suppressed` what leads to no notification
    although they know it. `facts` are for groups, in the same order, if the handler makes facts.
    """

    notifications: tuple[Notification, ...] = ()
    unmatched: int = 0
    suppressed: int = 0
    facts: tuple[Fact, ...] = ()


class Handler(Protocol):
    """Makes the notifications of an envelope. Called again for the same envelope after a transient error."""

    def handle(self, envelope: Any, data: Any, marks: Marks, now: Instant) -> Handled:
        """Handle the whole envelope or nothing of it.

        Raises:
            DependencyUnavailable: A server that the handler calls does not answer; the call is repeated later.
            TransientError: The same call may succeed later.
            PermanentError: The same call can never succeed; the envelope becomes a dead letter.
        """
        ...


HandlerCall = Callable[[Any, Any, Marks, Instant], Coroutine[Any, Any, Handled]]
"""The method `call` that a handler has if it waits. It takes and raises what `handle` does, and is called in the worker's thread.

Its coroutine runs beside that thread, and ends only when the call has really ended, also if it is cancelled.
"""


def find_call(handler: Any) -> HandlerCall | None:
    """Return the method `call` of a handler that waits; None for one that is called within the turn."""
    found: HandlerCall | None = getattr(handler, "call", None)
    return found


class DataHandler(Protocol):
    """Keeps a unit's data, which its handler gets with each event: what earlier events brought.

    Pure: data are immutable, and the same arguments give the same data. It sees only events that have `parts`, each as the
    configured format makes it.
    """

    @property
    def empty(self) -> Any:
        """The data of a new unit."""
        ...

    def absorb(self, data: Any, event: Any) -> Any:
        """Return the data with what the event brings."""
        ...

    def fill(self, data: Any, event: Any) -> Any:
        """Return the data with what the event brings and the data lacks: a late event must not replace anything."""
        ...

    def refuse_too_much(self, data: Any, event: Any, max_bytes: int, size: int) -> None:
        """Refuse an event with which the data, whose size is `size`, may exceed its limits.

        Raises:
            PermanentError: The data could be larger than `max_bytes`, or than another limit.
        """
        ...

    def size_of(self, data: Any) -> int:
        """Return about the bytes of the data."""
        ...

    def encode(self, data: Any) -> bytes:
        """Return the data as it is stored."""
        ...

    def decode(self, stored: bytes) -> Any:
        """Return stored data.

        Raises:
            PermanentError, msgspec.DecodeError, UnicodeDecodeError: They are damaged, or another data handler stored them.
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
