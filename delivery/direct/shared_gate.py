"""The gate of a receiver within one delivery worker, shared by all topics from which the receiver gets records."""

from collections.abc import Callable
from itertools import count

import msgspec

from delivery.answers import Failed, Outcome
from delivery.gate import Gate, GateState
from delivery.settings import Receiver


class SharedGate:
    """Counts the calls under way, and keeps the gate. Instants are in ms of a clock that never goes back.

    Only a suspension or a limit changes the gate. Failed attempts do not: the policy says what follows them.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._rows = count(1)
        self._listeners: list[Callable[[], None]] = []
        self.gate = Gate()
        self.running = 0

    def new_row(self) -> int:
        """Return a number that identifies a record."""
        return next(self._rows)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a call has ended, so that another may begin."""
        self._listeners.append(listener)

    def permits(self, now: int, wanted: int) -> int:
        return self.gate.permits(self._receiver, now, self.running, wanted)

    def begin(self, now: int, row: int) -> None:
        self.running += 1
        self.gate = self.gate.begun(self._receiver, now, [row], now + 2 * self._receiver.timeout_ms)

    def end(self, now: int, row: int, outcome: Outcome | None) -> bool:
        """Note the end of a call; without an outcome it was given up. Return whether the receiver sleeps and did so before.

        Call `wake` behind it.
        """
        self.running -= 1
        is_probe = self.gate.state is GateState.SHUT and self.gate.probe == row
        if outcome is None:
            self.gate = msgspec.structs.replace(self.gate, probe=None) if is_probe else self.gate
        elif is_probe and isinstance(outcome, Failed) and outcome.mode is None:
            # The record becomes a dead letter, and must not keep the gate shut: a receiver that sleeps answers otherwise.
            self.gate = self.gate.opened(now)
        else:
            after = self.gate.after(self._receiver, row, 0, outcome, now)
            self.gate = msgspec.structs.replace(after, suspects=())
        return is_probe and self.is_shut

    def wake(self) -> None:
        """Tell all listeners that another call may begin."""
        for listener in self._listeners:
            listener()

    @property
    def is_shut(self) -> bool:
        return self.gate.state is GateState.SHUT

    def retries_at(self, now: int) -> int:
        """Return when to ask again after no call was permitted: for the probe, or because of the rate."""
        if self.gate.state is GateState.SHUT:
            waits_for_probe = self.gate.probe is not None
            return self.gate.probe_until if waits_for_probe else max(self.gate.probe_at, now + 1)
        return max(self.gate.next_call, now + 20)
