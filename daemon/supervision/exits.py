"""How the workers of a slot ended, for the next one to report, and for `status` while there is none."""

import signal

import msgspec

from daemon.supervision.restart_policy import MOST_EXITS, WITHIN_MS
from domain.clock import Clock, instant_text
from status.file import StatusFile
from status.report import Identity, State, report


class Exits:
    """Kept by the supervisor. What a worker said of its own end is in its last report, before the next one begins."""

    def __init__(self, status: StatusFile, identity: Identity, clock: Clock) -> None:
        self._status = status
        self._identity = identity
        self._clock = clock
        self._tell(State.STARTING, None)

    @property
    def slot(self) -> int:
        return self._identity.slot

    @property
    def told_slot(self) -> int | None:
        """The slot, where there is more than one to tell apart."""
        return self._identity.slot if self._identity.worker_count > 1 else None

    @property
    def name(self) -> str:
        return "the worker" if self.told_slot is None else f"worker {self.told_slot}"

    @property
    def arguments(self) -> list[str]:
        """What the next worker is told of those before it."""
        identity = self._identity
        last = ("--last-exit", identity.last_exit) if identity.last_exit else ()
        return ["--restarts", str(identity.restarts), *last]

    def how(self, code: int, hung_seconds: float | None = None) -> str:
        """How it ended just now (negative for a signal), in words that go on after its name; hung for so long, if it did."""
        found = self._status.find()
        how = f"ended with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        if hung_seconds is not None:
            how = f"hung for more than {hung_seconds:g} s (handling-limit) and was ended"
        told = f"{how} at {instant_text(self._clock.now())}"
        if found is not None and found.state is State.STOPPED and found.process_id == self._identity.process_id and found.reason:
            told = f"{told}: {found.reason}"
        return told

    def note(self, told: str) -> None:
        """This is how it ended: for the next worker, and for the status until that one has begun."""
        self._identity = msgspec.structs.replace(self._identity, restarts=self._identity.restarts + 1, last_exit=told)
        self._tell(State.STARTING, f"{self.name} {told}")

    def tell_slow(self, reason: str) -> None:
        """The worker does not report while a call lasts: its last report gets this reason, and stays as old as it is."""
        found = self._status.find()
        if found is not None and found.process_id == self._identity.process_id and found.reason != reason:
            self._status.write(msgspec.structs.replace(found, reason=reason))

    def note_the_last(self) -> str:
        """No worker is started any more; why."""
        often = f"the {MOST_EXITS}th exit within {WITHIN_MS // 1_000} s: no further restart"
        reason = f"{self.name} {self._identity.last_exit}; {often}"
        self._tell(State.STOPPED, reason)
        return reason

    def note_stopped(self) -> None:
        """The service was told to stop before another worker was started: no failure."""
        self._tell(State.STOPPED, None)

    def _tell(self, state: State, reason: str | None) -> None:
        self._status.write(report(self._identity, state, reason, self._clock.now()))
