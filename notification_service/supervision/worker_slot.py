"""A slot of a service. It has one worker at a time: a child process that ends when this process ends."""

import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from time import monotonic

from notification_service.supervision.exit_cause import blame, cause_of, was_told
from notification_service.supervision.exits import Exits
from notification_service.supervision.in_flight_memory import InFlightEnvelope
from notification_service.supervision.restart_policy import RestartPolicy
from notification_service.supervision.service_log import ServiceLog
from notification_service.supervision.suspects import EXITS_OF_ONE
from notification_service.supervision.watchdog import Watchdog

_log = logging.getLogger("resequencer.supervisor")
_ABORT_SECONDS = 2
"""How long an aborted worker may take to print its stack."""
_READ_BYTES = 65_536
_READS = 8
_LONGEST_LINE_BYTES = 1024 * 1024


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
        self._service_log = log
        self._exits = exits
        self._in_flight = in_flight
        self._poison: InFlightEnvelope | None = None
        self._aborted_at: float | None = None
        self._policy = policy
        self._worker: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._said: int | None = None
        self._begun = b""
        self._starts_at: float | None = monotonic()

    @property
    def name(self) -> str:
        return self._exits.name

    @property
    def said(self) -> int | None:
        """The descriptor of the worker's output; None after the output has ended."""
        return self._said

    @property
    def is_running(self) -> bool:
        return self._worker is not None

    @property
    def starts_at(self) -> float | None:
        """When the next worker is due, by the monotonic clock; None while one runs, and when no start follows."""
        return self._starts_at

    def start(self) -> None:
        theirs, self._lifeline = os.pipe()
        self._said, speaking = os.pipe()
        os.set_blocking(self._said, False)
        self._in_flight.begin()
        self._aborted_at = None
        shared = ["--lifeline", str(theirs), "--in-flight", str(self._in_flight.descriptor)]
        command = [*self._command, "--slot", str(self._exits.slot), *shared, *self._exits.arguments]
        passed = (theirs, self._in_flight.descriptor, *self._descriptors)
        try:
            self._worker = subprocess.Popen(  # noqa: S603 - our own command, with the arguments that were checked before.
                command, stdin=subprocess.DEVNULL, stdout=speaking, stderr=speaking, pass_fds=passed
            )
        finally:
            os.close(theirs)
            os.close(speaking)
        self._starts_at = None

    def listen(self) -> None:
        """Write to the log what the worker has printed so far; a part of it, if it never stops."""
        for _ in range(_READS):
            if self._said is None:
                return
            try:
                said = os.read(self._said, _READ_BYTES)
            except BlockingIOError:
                return
            self._keep(said)
            if not said:
                os.close(self._said)
                self._said = None

    @property
    def look_seconds(self) -> float | None:
        """How often to `look`, in seconds; None while there is nothing to look at."""
        return None if self._worker is None else self._in_flight.interval_seconds

    def look(self) -> None:
        """Check the envelope in flight. A worker that takes too long is aborted, which prints its stack even if native code
        blocks all threads of Python. A worker that does not end then is killed.
        """
        if self._worker is None:
            return
        if self._aborted_at is not None:
            if monotonic() - self._aborted_at > _ABORT_SECONDS:
                self._worker.kill()
            return
        held = self._in_flight.look(self._worker.pid)
        if held is not None:
            told = "%s has been %s for more than %g s (handling-limit): the worker is ended. Its stack follows; fix that call"
            _log.error(told, self._exits.name, held, self._in_flight.limit_seconds, extra=held.places)
            self._worker.send_signal(signal.SIGABRT)
            self._aborted_at = monotonic()
        elif (slow := self._in_flight.find_slow()) is not None:
            self._exits.tell_slow(f"{slow}; after {self._in_flight.limit_seconds:g} s (handling-limit) the worker is ended")

    def find_end(self) -> int | None:
        """Return once how the worker ended (negative for a signal); None while it runs, and while there is none."""
        code = None if self._worker is None else self._worker.poll()
        if code is None:
            return None
        # Processes that the worker started may keep its output open for longer; the supervisor does not wait for that.
        self.listen()
        self._keep(b"")
        if self._said is not None:
            os.close(self._said)
        self._worker = self._said = None
        self._poison = self._in_flight.find_poison(code)
        self._cut()
        return code

    @property
    def has_poison(self) -> bool:
        """Whether an envelope ended the last worker."""
        return self._poison is not None

    def note_exit(self, code: int) -> bool:
        """Record the exit. Return whether a restart follows after a pause; if not, the status has the reason."""
        hung_seconds = self._in_flight.limit_seconds if self._in_flight.is_hung else None
        told, now = self._exits.how(code, hung_seconds), round(monotonic() * 1_000)
        suspect, held = None, self._poison
        if held is not None:
            suspect = self._in_flight.count(held, told)
            told = f"{told} {blame(held, suspect)}"
        self._exits.note(told, cause_of(code, is_hung=self._in_flight.is_hung, has_poison=held is not None))
        is_explained = was_told(code) if held is None else suspect is not None and suspect.exits <= EXITS_OF_ONE
        pause_ms = self._policy.note_explained(now) if is_explained else self._policy.note_exit(now)
        if pause_ms is None:
            _log.error("%s", self._exits.note_the_last())
            return False
        places = {} if held is None else held.places
        _log.warning("%s %s; restart in %.1f s", self._exits.name, told, pause_ms / 1_000, extra=places)
        self._starts_at = monotonic() + pause_ms / 1_000
        return True

    def drain(self) -> None:
        """Let the worker finish its cycle; no other worker follows."""
        if self._starts_at is not None:
            self._exits.note_stopped()
            self._starts_at = None
        self._cut()

    def kill(self) -> None:
        if self._worker is not None:
            self._worker.kill()

    def _cut(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def _keep(self, said: bytes) -> None:
        """Return whole lines. The rest is kept until its line ends, up to a length."""
        *lines, rest = (self._begun + said).split(b"\n")
        if rest and (not said or len(rest) > _LONGEST_LINE_BYTES):
            lines, rest = [*lines, rest], b""
        self._begun = rest
        for line in lines:
            self._service_log.write(line, self._exits.told_slot)
