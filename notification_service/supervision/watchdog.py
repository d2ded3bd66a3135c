"""The watchdog of a worker: how long envelopes have been in flight, and which of them caused an exit."""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from notification_service.supervision.exit_rules import CallWatch, is_own_doing
from notification_service.supervision.in_flight_memory import InFlightEnvelope, InFlightMemory, distinct, new_descriptor
from notification_service.supervision.suspects import Suspects, Verdict

_SHOWN_MS = 5_000
"""An envelope in flight for this long is shown in the status, before the status becomes stale."""


class Watchdog:
    """Watches a slot, with all its workers one after the other. `descriptor` is the shared memory that a worker is given."""

    def __init__(self, suspects: Suspects, handling_limit_ms: int) -> None:
        self.descriptor = new_descriptor()
        self.limit_seconds = handling_limit_ms / 1_000
        self._suspects = suspects
        self._memory = InFlightMemory(self.descriptor)
        self._watches = self._new_watches()
        self._hung: Sequence[InFlightEnvelope] = ()

    @property
    def interval_seconds(self) -> float:
        """How often to call `look`, in seconds."""
        return self._watches[0].interval_ms / 1_000

    @property
    def is_hung(self) -> bool:
        """Whether the worker must be ended because of what is in flight."""
        return bool(self._hung)

    def begin(self) -> None:
        """Begin to watch a new worker, with no envelope in flight."""
        self._memory.clear()
        self._watches = self._new_watches()
        self._hung = ()

    def look(self, process_id: int) -> Sequence[InFlightEnvelope]:
        """Return the envelope that has been in flight for longer than the limit; it is returned once.

        With it come others that do not move, either: one thread may hold the interpreter, and nothing shows which one.
        """
        now = round(monotonic() * 1_000)
        for slot, watch in zip(self._memory.slots, self._watches, strict=True):
            watch.look(slot.call, now)
        # A worker that is stopped from outside cannot continue.
        if any(each.elapsed_ms for each in self._watches) and _is_halted(process_id):
            for each in self._watches:
                each.forgive()
        if self.is_hung or not any(each.is_over for each in self._watches):
            return ()
        stuck = zip(self._memory.slots, self._watches, strict=True)
        self._hung = distinct(slot.find() for slot, watch in stuck if watch.is_stuck)
        return self._hung

    def find_slow(self) -> InFlightEnvelope | None:
        """Return the envelope with which the worker's own thread has been for long enough that it must be shown."""
        return self._memory.turn.find() if self._watches[0].elapsed_ms > _SHOWN_MS else None

    def find_poison(self, code: int) -> Sequence[InFlightEnvelope]:
        """Return the envelopes of which one ended the worker; none if none was in flight. A negative `code` is a signal."""
        return self._hung or (self._memory.find_executed() if is_own_doing(code) else ())

    def judge(self, in_flight: Sequence[InFlightEnvelope], how: str) -> Verdict:
        """Count one more exit, for the one of these envelopes that caused it, if that is known."""
        return self._suspects.judge(in_flight, how)

    def _new_watches(self) -> list[CallWatch]:
        return [CallWatch(round(self.limit_seconds * 1_000)) for _ in self._memory.slots]


def _is_halted(process_id: int) -> bool:
    """Return whether the process is stopped by SIGSTOP or a debugger."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
