"""A slot of a service. It has one worker at a time: a child process that ends when this process ends."""

import logging
import signal
from collections.abc import Sequence
from time import monotonic

from notification_service.supervision.child import Child
from notification_service.supervision.exit_rules import RestartPolicy, blame, blame_none, cause_of, names_of, was_ordered
from notification_service.supervision.exits import Exits
from notification_service.supervision.in_flight_memory import InFlightEnvelope
from notification_service.supervision.service_log import ServiceLog
from notification_service.supervision.watchdog import Watchdog

_log = logging.getLogger("resequencer.supervisor")
_ABORT_SECONDS = 2
"""How long an aborted worker may take to print its stack."""


class WorkerSlot:
    """Starts workers, keeps their output, and knows when the next one is due. No method waits.

    `command` starts a worker after these are appended: its slot, `--lifeline` and `--in-flight` with a descriptor each, and the
    arguments about earlier exits. `descriptors` are the locks. The worker holds them, too, so that no other service can take its
    place before it has ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        descriptors: Sequence[int],
        log: ServiceLog,
        exits: Exits,
        in_flight: Watchdog,
        policy: RestartPolicy,
    ) -> None:
        self._command = command
        self._descriptors = descriptors
        self._exits = exits
        self._in_flight = in_flight
        self._poison: Sequence[InFlightEnvelope] = ()
        self._aborted_at: float | None = None
        self._policy = policy
        self._child = Child(lambda line: log.write(line, exits.shown_slot))
        self._starts_at: float | None = monotonic()

    @property
    def name(self) -> str:
        return self._exits.name

    @property
    def output(self) -> int | None:
        """The descriptor of the worker's output; None after the output has ended."""
        return self._child.output

    @property
    def is_running(self) -> bool:
        return self._child.process is not None

    @property
    def starts_at(self) -> float | None:
        """When the next worker is due, by the monotonic clock; None while one runs, and when no start follows."""
        return self._starts_at

    def start(self) -> None:
        self._in_flight.begin()
        self._aborted_at = None
        in_flight = self._in_flight.descriptor
        command = [*self._command, "--slot", str(self._exits.slot), "--in-flight", str(in_flight), *self._exits.arguments]
        self._child.start(command, (in_flight, *self._descriptors))
        self._starts_at = None

    def listen(self) -> None:
        """Write to the log what the worker has printed so far; a part of it, if it never stops."""
        self._child.listen()

    @property
    def look_seconds(self) -> float | None:
        """How often to `look`, in seconds; None while there is nothing to look at."""
        return self._in_flight.interval_seconds if self.is_running else None

    def look(self) -> None:
        """Check the envelopes in flight. A worker that takes too long is aborted, which prints its stack even if native code
        blocks all threads of Python. A worker that does not end then is killed.
        """
        worker = self._child.process
        if worker is None:
            return
        if self._aborted_at is not None:
            if monotonic() - self._aborted_at > _ABORT_SECONDS:
                worker.kill()
            return
        hung = self._in_flight.look(worker.pid)
        if hung:
            text = "%s has been %s for more than %g s (handling-limit): the worker is ended. Its stack follows; fix that call"
            _log.error(text, self._exits.name, names_of(hung), self._in_flight.limit_seconds, extra=_places(hung))
            worker.send_signal(signal.SIGABRT)
            self._aborted_at = monotonic()
        elif (slow := self._in_flight.find_slow()) is not None:
            self._exits.tell_slow(f"{slow}; after {self._in_flight.limit_seconds:g} s (handling-limit) the worker is ended")

    def find_end(self) -> int | None:
        """Return once how the worker ended (negative for a signal); None while it runs, and while there is none."""
        code = self._child.find_end()
        if code is not None:
            self._poison = self._in_flight.find_poison(code)
        return code

    @property
    def has_poison(self) -> bool:
        """Whether an envelope ended the last worker."""
        return bool(self._poison)

    def note_exit(self, code: int) -> bool:
        """Record the exit. Return whether a restart follows after a pause; if not, the status has the reason."""
        hung_seconds = self._in_flight.limit_seconds if self._in_flight.is_hung else None
        exit_text, now = self._exits.how(code, hung_seconds), round(monotonic() * 1_000)
        is_explained, poison = was_ordered(code), self._poison
        if poison:
            verdict = self._in_flight.judge(poison, exit_text)
            is_explained, blamed = verdict.is_progress, verdict.blamed
            exit_text += f" {blame_none(poison) if blamed is None else blame(blamed, verdict.suspect)}"
            poison = poison if blamed is None else [blamed]
        self._exits.note(exit_text, cause_of(code, is_hung=self._in_flight.is_hung, has_poison=self.has_poison))
        pause_ms = self._policy.note_explained(now) if is_explained else self._policy.note_exit(now)
        if pause_ms is None:
            _log.error("%s", self._exits.note_the_last())
            return False
        _log.warning("%s %s; restart in %.1f s", self._exits.name, exit_text, pause_ms / 1_000, extra=_places(poison))
        self._starts_at = monotonic() + pause_ms / 1_000
        return True

    def drain(self) -> None:
        """Let the worker finish its cycle; no other worker follows."""
        if self._starts_at is not None:
            self._exits.note_stopped()
            self._starts_at = None
        self._child.cut()

    def kill(self) -> None:
        self._child.kill()


def _places(in_flight: Sequence[InFlightEnvelope]) -> dict[str, str]:
    """Return the places for a log line; several envelopes have none in common."""
    return in_flight[0].places if len(in_flight) == 1 else {}
