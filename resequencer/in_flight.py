"""What a worker is busy with, kept where it is still known when the worker has died of it."""

from enum import IntEnum
from typing import Protocol

from domain.envelope import DataEnvelope


class CallKind(IntEnum):
    """What is done with an envelope by code that may not be ours: a handler has it, or a user's strategy is asked about it."""

    HANDLING = 1
    ASKING = 2

    @property
    def words(self) -> str:
        """The envelope follows."""
        return "handling" if self is CallKind.HANDLING else "asking the strategy about"


class InFlight(Protocol):
    """Holds at most one envelope: the one that such code is called with at the moment. Told around every call, so it is quick."""

    def take(self, envelope: DataEnvelope, kind: CallKind) -> None:
        """The call begins.

        Raises:
            EndedItsWorker: Too many workers ended in this call with this envelope; it must not be made again.
        """
        ...

    def put_off(self, envelope: DataEnvelope) -> None:
        """It was called in vain, and will be again: what is known of the envelope still counts."""
        ...

    def clear(self) -> None:
        """The call is over, however it ended."""
        ...


class Untracked:
    """For a dry run or a simulation: no supervisor looks."""

    def take(self, envelope: DataEnvelope, kind: CallKind) -> None:
        pass

    def put_off(self, envelope: DataEnvelope) -> None:
        pass

    def clear(self) -> None:
        pass
