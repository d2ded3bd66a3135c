"""Gives the calls that a receiver takes to the stages in turn."""

import asyncio
from collections import deque
from typing import Protocol

from notification_service.delivery.direct.core.rests import Pressure
from notification_service.delivery.direct.core.shared_gate import SharedGate


class Calling(Protocol):
    """A stage that makes calls. Instants are in ms of the event loop's clock."""

    def begin_one(self, now: int) -> bool:
        """Begin a call; return False if no record is due, or none may be called."""
        ...

    def find_next_due(self) -> int | None:
        """Return when the next record is due; None if none waits, or none may be called."""
        ...

    @property
    def reads_source(self) -> bool:
        """Whether records may come that were not judged before."""
        ...

    def held_bytes(self) -> int:
        """Return about how much memory the open records take."""
        ...


class CallSlots:
    """A stage with a backlog cannot keep the others from their calls: each free slot goes to the stage whose turn it is."""

    def __init__(self, gate: SharedGate) -> None:
        self.gate = gate
        self._stages: deque[Calling] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def join(self, stage: Calling) -> None:
        self._stages.append(stage)

    def leave(self, stage: Calling) -> None:
        """Begin no more calls of the stage. Without a stage nothing is awaited any more."""
        if stage in self._stages:
            self._stages.remove(stage)
        if not self._stages:
            self._cancel()

    @property
    def reads_source(self) -> bool:
        """Whether this worker has partitions of the topics themselves, and not only of retry topics."""
        return any(each.reads_source for each in self._stages)

    def held_bytes(self) -> int:
        """Return about how much memory the open records of all stages take."""
        return sum(each.held_bytes() for each in self._stages)

    def pressure(self) -> Pressure:
        """Return what decides how far is read."""
        return Pressure(self.held_bytes(), self.now(), self.gate.sleeps)

    def wake(self) -> None:
        """Begin as many calls as the gate permits, and see to it that this is tried again when the next record is due."""
        self._cancel()
        now, idle = self.now(), 0
        while idle < len(self._stages) and self.gate.permits(now, 1) > 0:
            stage = self._stages[0]
            self._stages.rotate(-1)
            idle = 0 if stage.begin_one(now) else idle + 1
        self._wait(now)

    def now(self) -> int:
        return round(asyncio.get_running_loop().time() * 1_000)

    def _wait(self, now: int) -> None:
        nexts = [each for stage in self._stages if (each := stage.find_next_due()) is not None]
        if nexts:
            at = min(nexts) if min(nexts) > now else self.gate.retries_at(now)
            self._timer = asyncio.get_running_loop().call_later((at - now) / 1_000, self.wake)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
