"""The request to stop: SIGTERM, SIGINT or the end of the supervisor. The first signal drains, a second one ends at once."""

import os
import signal
from select import select
from threading import Event
from types import FrameType
from typing import Protocol


class Wait(Protocol):
    """Sleeps for this time, or until the event is set. It may return early."""

    def __call__(self, milliseconds: int, until: Event | None = None) -> None: ...


class Lifeline:
    """The worker's end of the pipe. Nothing is ever written to it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.set_inheritable(descriptor, False)

    def is_cut(self) -> bool:
        """Whether the supervisor closed its end, or has ended."""
        readable, _, _ = select([self._descriptor], [], [], 0)
        return bool(readable)


_SLICE_MS = 100


class StopSignal:
    """A flag that a signal or a cut lifeline sets, and that the worker's loop asks. Setting it ends a wait early."""

    def __init__(self, lifeline: Lifeline | None = None) -> None:
        self._lifeline = lifeline
        self._was_requested = False

    @property
    def is_set(self) -> bool:
        return self._was_requested or (self._lifeline is not None and self._lifeline.is_cut())

    def install(self) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._receive)

    def wait(self, milliseconds: int, until: Event | None = None) -> None:
        """Sleep for this time, or until the event is set.

        It sleeps in slices: a signal does not interrupt a sleep, but no further slice begins.
        """
        until = until or Event()
        while milliseconds > 0 and not self.is_set:
            slice_ms = min(milliseconds, _SLICE_MS)
            if until.wait(slice_ms / 1_000):
                return
            milliseconds -= slice_ms

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._was_requested:
            os._exit(128 + number)
        self._was_requested = True
