"""Stopping on SIGTERM and SIGINT: the first drains, a second one ends at once. And when the supervisor is gone."""

import os
import signal
from time import sleep
from types import FrameType

from daemon.supervision.lifeline import Lifeline

_SLICE_MS = 100


class StopSignal:
    """Set by a signal, or by a lifeline that was cut; asked by the worker's loop. Waiting ends early when it is set."""

    def __init__(self, lifeline: Lifeline | None = None) -> None:
        self._lifeline = lifeline
        self._was_told = False

    @property
    def is_set(self) -> bool:
        return self._was_told or (self._lifeline is not None and self._lifeline.is_cut())

    def install(self) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._receive)

    def wait(self, milliseconds: int) -> None:
        """Sleep that long, in slices: a signal does not interrupt a sleep, but the next slice is not begun."""
        while milliseconds > 0 and not self.is_set:
            slice_ms = min(milliseconds, _SLICE_MS)
            sleep(slice_ms / 1_000)
            milliseconds -= slice_ms

    def _receive(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self._was_told:
            os._exit(128 + number)
        self._was_told = True
