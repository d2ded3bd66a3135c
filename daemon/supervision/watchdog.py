"""A worker's hand as its supervisor sees it: what has been in it for too long, and what is counted for which envelope."""

from pathlib import Path
from time import monotonic

from daemon.supervision.call_watch import HandWatch
from daemon.supervision.exit_cause import is_own_doing
from daemon.supervision.in_flight_memory import HandMemory, InHand, new_descriptor
from daemon.supervision.suspects import Suspect, Suspects

_TOLD_MS = 5_000
"""What has been in hand for so long is told in the status, which is stale soon."""


class WatchedHand:
    """Of one slot, for all workers in it, one after the other. `descriptor` is what a worker is given."""

    def __init__(self, suspects: Suspects, handling_limit_ms: int) -> None:
        self.descriptor = new_descriptor()
        self.limit_seconds = handling_limit_ms / 1_000
        self._suspects = suspects
        self._memory = HandMemory(self.descriptor)
        self._watch = HandWatch(handling_limit_ms)
        self._hung: InHand | None = None

    @property
    def interval_seconds(self) -> float:
        """How often `look` is to be called."""
        return self._watch.interval_ms / 1_000

    @property
    def is_hung(self) -> bool:
        """Its worker is to be ended for what it has in hand."""
        return self._hung is not None

    def begin(self) -> None:
        """Another worker begins, with nothing in hand."""
        self._memory.clear()
        self._watch = HandWatch(round(self.limit_seconds * 1_000))
        self._hung = None

    def look(self, process_id: int) -> InHand | None:
        """What has been in hand for longer than the limit, told once."""
        self._watch.look(self._memory.call, round(monotonic() * 1_000))
        # A worker that is halted from outside cannot go on.
        if self._watch.elapsed_ms and _is_halted(process_id):
            self._watch.forgive()
        if self.is_hung or not self._watch.is_over:
            return None
        self._hung = self._memory.find()
        return self._hung

    def find_slow(self) -> InHand | None:
        """What has been in hand for long enough to be told."""
        return self._memory.find() if self._watch.elapsed_ms > _TOLD_MS else None

    def find_culprit(self, code: int) -> InHand | None:
        """What its worker died of, None if that was of nothing in its hand. `code` is how it ended, negative for a signal."""
        return self._hung or (self._memory.find() if is_own_doing(code) else None)

    def count(self, held: InHand, death: str) -> Suspect | None:
        """One more worker has ended with it. None if that could not be written down."""
        return self._suspects.count(held, death)


def _is_halted(process_id: int) -> bool:
    """By SIGSTOP or a debugger."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
