"""The watchdog of a worker: how long an envelope has been in flight, and which envelope caused an exit."""

from pathlib import Path
from time import monotonic

from notification_service.supervision.exit_rules import CallWatch, is_own_doing
from notification_service.supervision.in_flight_memory import InFlightEnvelope, InFlightMemory, new_descriptor
from notification_service.supervision.suspects import Suspect, Suspects

_SHOWN_MS = 5_000
"""An envelope in flight for this long is shown in the status, before the status becomes stale."""


class Watchdog:
    """Watches a slot, with all its workers one after the other. `descriptor` is the shared memory that a worker is given."""

    def __init__(self, suspects: Suspects, handling_limit_ms: int) -> None:
        self.descriptor = new_descriptor()
        self.limit_seconds = handling_limit_ms / 1_000
        self._suspects = suspects
        self._memory = InFlightMemory(self.descriptor)
        self._watch = CallWatch(handling_limit_ms)
        self._hung: InFlightEnvelope | None = None

    @property
    def interval_seconds(self) -> float:
        """How often to call `look`, in seconds."""
        return self._watch.interval_ms / 1_000

    @property
    def is_hung(self) -> bool:
        """Whether the worker must be ended because of the envelope in flight."""
        return self._hung is not None

    def begin(self) -> None:
        """Begin to watch a new worker, with no envelope in flight."""
        self._memory.clear()
        self._watch = CallWatch(round(self.limit_seconds * 1_000))
        self._hung = None

    def look(self, process_id: int) -> InFlightEnvelope | None:
        """Return the envelope that has been in flight for longer than the limit; it is returned once."""
        self._watch.look(self._memory.call, round(monotonic() * 1_000))
        # A worker that is stopped from outside cannot continue.
        if self._watch.elapsed_ms and _is_halted(process_id):
            self._watch.forgive()
        if self.is_hung or not self._watch.is_over:
            return None
        self._hung = self._memory.find()
        return self._hung

    def find_slow(self) -> InFlightEnvelope | None:
        """Return the envelope that has been in flight for long enough to be shown."""
        return self._memory.find() if self._watch.elapsed_ms > _SHOWN_MS else None

    def find_poison(self, code: int) -> InFlightEnvelope | None:
        """Return the envelope that ended the worker; None if none was in flight. A negative `code` is a signal."""
        return self._hung or (self._memory.find() if is_own_doing(code) else None)

    def count(self, in_flight: InFlightEnvelope, how: str) -> Suspect | None:
        """Count one more exit with this envelope. None if that could not be written."""
        return self._suspects.count(in_flight, how)


def _is_halted(process_id: int) -> bool:
    """Return whether the process is stopped by SIGSTOP or a debugger."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
