"""The watchdog of a worker: how long it has had an envelope in flight, and which envelope it died of."""

from pathlib import Path
from time import monotonic

from daemon.supervision.call_watch import CallWatch
from daemon.supervision.exit_cause import is_own_doing
from daemon.supervision.in_flight_memory import InFlightEnvelope, InFlightMemory, new_descriptor
from daemon.supervision.suspects import Suspect, Suspects

_TOLD_MS = 5_000
"""What has been in flight for so long is told in the status, which is stale soon."""


class Watchdog:
    """Of one slot, for all workers in it, one after the other. `descriptor` is what a worker is given."""

    def __init__(self, suspects: Suspects, handling_limit_ms: int) -> None:
        self.descriptor = new_descriptor()
        self.limit_seconds = handling_limit_ms / 1_000
        self._suspects = suspects
        self._memory = InFlightMemory(self.descriptor)
        self._watch = CallWatch(handling_limit_ms)
        self._hung: InFlightEnvelope | None = None

    @property
    def interval_seconds(self) -> float:
        """How often `look` is to be called."""
        return self._watch.interval_ms / 1_000

    @property
    def is_hung(self) -> bool:
        """Its worker is to be ended for what it has in flight."""
        return self._hung is not None

    def begin(self) -> None:
        """Another worker begins, with nothing in flight."""
        self._memory.clear()
        self._watch = CallWatch(round(self.limit_seconds * 1_000))
        self._hung = None

    def look(self, process_id: int) -> InFlightEnvelope | None:
        """What has been in flight for longer than the limit, told once."""
        self._watch.look(self._memory.call, round(monotonic() * 1_000))
        # A worker that is halted from outside cannot go on.
        if self._watch.elapsed_ms and _is_halted(process_id):
            self._watch.forgive()
        if self.is_hung or not self._watch.is_over:
            return None
        self._hung = self._memory.find()
        return self._hung

    def find_slow(self) -> InFlightEnvelope | None:
        """What has been in flight for long enough to be told."""
        return self._memory.find() if self._watch.elapsed_ms > _TOLD_MS else None

    def find_poison(self, code: int) -> InFlightEnvelope | None:
        """What its worker died of, None if that was of nothing in flight. `code` is how it ended, negative for a signal."""
        return self._hung or (self._memory.find() if is_own_doing(code) else None)

    def count(self, held: InFlightEnvelope, how: str) -> Suspect | None:
        """One more worker has ended with it. None if that could not be written down."""
        return self._suspects.count(held, how)


def _is_halted(process_id: int) -> bool:
    """By SIGSTOP or a debugger."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
