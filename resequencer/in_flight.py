"""The envelope in flight: the one that a worker is handling. It is kept outside the worker, so that it survives a crash."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from resequencer.event import Event

MAX_THREADS = 256
"""How many threads of a worker may execute calls of handlers."""


class CallKind(IntEnum):
    """The call that an envelope is in flight for: a handler, or a user's strategy, format or data handler."""

    HANDLING = 1
    ASKING = 2
    READING = 3
    KEEPING = 4

    @property
    def words(self) -> str:
        """The call in words, for a text in which the envelope follows."""
        return ("handling", "asking the strategy about", "reading", "keeping the data of")[self - 1]


class InFlight(Protocol):
    """Holds the envelope of the present call, at most one. Its methods run before and after every call, so they must be fast."""

    def take(self, envelope: Event, kind: CallKind) -> None:
        """Note that the call begins.

        Raises:
            EndedItsWorker: Too many workers ended in this call with this envelope; the call must not be repeated.
        """
        ...

    def postpone(self, envelope: Event) -> None:
        """Note that the call failed and will be repeated: the exits counted for the envelope still count."""
        ...

    def clear(self) -> None:
        """Note that the call has ended, with or without success."""
        ...


class Slot(Protocol):
    """Holds the envelope of the call that one thread executes now."""

    def take(self, envelope: Event, kind: CallKind) -> None: ...

    def clear(self) -> None: ...


class CallSlots(NamedTuple):
    """The slots of the threads beside the worker's: of the step of a coroutine, and of each thread that handles.

    `overdue` is for a call that was to end and has not.
    """

    step: Slot
    overdue: Slot
    threads: Sequence[Slot]


class CallsInFlight(InFlight, Protocol):
    """Holds also the envelopes of calls beside the worker's thread. Only this thread uses its methods; slots have their own."""

    @property
    def beside(self) -> CallSlots: ...

    def is_suspect(self, envelope: Event) -> bool:
        """Return whether a worker has ended while it handled this envelope, maybe beside others."""
        ...

    def admit(self, envelope: Event) -> None:
        """Note that a call beside the worker's thread begins.

        Raises:
            EndedItsWorker: As `take`.
        """
        ...

    def settle(self, envelope: Event) -> None:
        """Note that a call beside the worker's thread has ended, and will not be repeated."""
        ...


class Untracked:
    """Tracks nothing. For dry runs and simulations, which have no supervisor."""

    def __init__(self) -> None:
        self.beside = CallSlots(self, self, (self,) * MAX_THREADS)

    def take(self, envelope: Event, kind: CallKind) -> None:
        pass

    def postpone(self, envelope: Event) -> None:
        pass

    def clear(self) -> None:
        pass

    def is_suspect(self, envelope: Event) -> bool:
        del envelope
        return False

    def admit(self, envelope: Event) -> None:
        pass

    def settle(self, envelope: Event) -> None:
        pass
