"""The envelope in flight: the one that a worker is handling. It is kept outside the worker, so that it survives a crash."""

from enum import IntEnum
from typing import Protocol

from resequencer.event import Event


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


class Untracked:
    """Tracks nothing. For dry runs and simulations, which have no supervisor."""

    def take(self, envelope: Event, kind: CallKind) -> None:
        pass

    def postpone(self, envelope: Event) -> None:
        pass

    def clear(self) -> None:
        pass
