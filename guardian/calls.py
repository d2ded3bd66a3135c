"""The calls of handlers that wait, which run beside the worker's thread."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from resequencer.call import Call
from resequencer.handler import Handled


class Ended(NamedTuple):
    """A call that has ended. `at` is when, in seconds of the monotonic clock."""

    call: Call
    outcome: Handled | BaseException
    at: float


class Runner(Protocol):
    """Runs calls beside the worker's thread, which alone calls its methods."""

    def must_be_alone(self, call: Call) -> bool:
        """Return whether its envelope may have ended a worker: it begins only when no other call runs, and none beside it."""
        ...

    def start(self, call: Call) -> None:
        """Begin the call. Never waits; a refusal (EndedItsWorker) has ended at once."""
        ...

    def cancel(self, call: Call) -> None:
        """Ask the call to end. `ended` returns it when it really has."""
        ...

    def ended(self) -> Sequence[Ended]:
        """Return the calls that have ended since the last time, each once, also those that were cancelled."""
        ...

    def wait(self, seconds: float) -> None:
        """Wait until a call has ended, so long at most."""
        ...

    def close(self) -> None: ...
