"""Records how the workers of a slot ended: for the report of the next worker, and for `status` until it reports."""

import signal

import msgspec

from notification_service.status.file import StatusFile
from notification_service.status.report import ExitCause, Identity, State, report
from notification_service.supervision.exit_rules import MAX_EXITS, WITHIN_MS
from resequencer.clock import Clock, instant_text


class Exits:
    """The exits of a slot, kept by the supervisor. A worker's own reason is in its last report until the next worker starts."""

    def __init__(self, status: StatusFile, identity: Identity, clock: Clock) -> None:
        self._status = status
        self._identity = identity
        self._clock = clock
        self._tell(State.STARTING, None)

    @property
    def slot(self) -> int:
        return self._identity.slot

    @property
    def shown_slot(self) -> int | None:
        """The slot, if the service has more than one worker."""
        return self._identity.slot if self._identity.worker_count > 1 else None

    @property
    def name(self) -> str:
        return "the worker" if self.shown_slot is None else f"worker {self.shown_slot}"

    @property
    def arguments(self) -> list[str]:
        """The arguments that tell the next worker about earlier exits."""
        identity = self._identity
        last = ("--last-exit", identity.last_exit) if identity.last_exit else ()
        causes = msgspec.json.encode(identity.restart_causes).decode()
        counted = ("--restart-causes", causes) if identity.restart_causes else ()
        return ["--restarts", str(identity.restarts), *last, *counted]

    def how(self, code: int, hung_seconds: float | None = None) -> str:
        """Describe the exit that just happened; the worker's name stands before the text. A negative code is a signal;
        `hung_seconds` is the limit that a hung worker exceeded.
        """
        found = self._status.find()
        how = f"ended with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        if hung_seconds is not None:
            how = f"hung for more than {hung_seconds:g} s (handling-limit) and was ended"
        text = f"{how} at {instant_text(self._clock.now())}"
        if found is not None and found.state is State.STOPPED and found.process_id == self._identity.process_id and found.reason:
            text = f"{text}: {found.reason}"
        return text

    def note(self, text: str, cause: ExitCause) -> None:
        """Record an exit, for the next worker, and for the status until that worker reports."""
        causes = {**self._identity.restart_causes, cause.value: self._identity.restart_causes.get(cause, 0) + 1}
        restarts = self._identity.restarts + 1
        self._identity = msgspec.structs.replace(self._identity, restarts=restarts, last_exit=text, restart_causes=causes)
        self._tell(State.STARTING, f"{self.name} {text}")

    def tell_slow(self, reason: str) -> None:
        """Write this reason into the worker's last report, whose instant stays: the worker itself cannot report during a call."""
        found = self._status.find()
        if found is not None and found.process_id == self._identity.process_id and found.reason != reason:
            self._status.write(msgspec.structs.replace(found, reason=reason))

    def note_the_last(self) -> str:
        """Record that no worker is started any more, and return the reason."""
        often = f"the {MAX_EXITS}th exit within {WITHIN_MS // 1_000} s: no further restart"
        reason = f"{self.name} {self._identity.last_exit}; {often}"
        self._tell(State.STOPPED, reason)
        return reason

    def note_stopped(self) -> None:
        """Record that the service was stopped before another worker was started, which is no failure."""
        self._tell(State.STOPPED, None)

    def _tell(self, state: State, reason: str | None) -> None:
        self._status.write(report(self._identity, state, reason, self._clock.now()))
