"""The supervisor: starts a worker in each slot, restarts a worker that ends, and lets all drain when it gets a signal."""

import logging
import os
import selectors
import signal
from collections.abc import Callable, Sequence
from time import monotonic
from types import FrameType

from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.exit_rules import was_ordered
from notification_service.supervision.side_process import SideProcess
from notification_service.supervision.worker_slot import WorkerSlot

_log = logging.getLogger("resequencer.supervisor")
_DRAIN_SECONDS = 30
_FINAL = (ExitCode.USAGE, ExitCode.CONFIGURATION_REFUSED)
"""Exit codes after which a restart cannot help."""


class Supervisor:
    """Supervises the slots of one service, all in one thread.

    If the worker of a slot cannot be kept alive, the whole service ends, and the other workers drain. With `starts_again` false
    another program restarts the service, so the supervisor ends with its worker, unless an envelope ended the worker. `beside`
    run beside the workers and drain with them; the `console` runs until all have ended.
    """

    def __init__(
        self,
        slots: Sequence[WorkerSlot],
        *,
        starts_again: bool = True,
        beside: Sequence[SideProcess] = (),
        console: SideProcess | None = None,
    ) -> None:
        assert slots
        self._slots = slots
        self._starts_again = starts_again
        self._beside = beside
        self._side = [*beside, *([] if console is None else [console])]
        self._drained: Sequence[WorkerSlot | SideProcess] = [*slots, *beside]
        self._all: Sequence[WorkerSlot | SideProcess] = [*slots, *self._side]
        self._woken, self._waking = os.pipe()
        self._signals = 0
        self._last_signal = 0
        self._is_late = False
        self._is_draining = False
        self._failure: int | None = None
        self._last_codes: list[int] = []

    def run(self, *, has_signal: Callable[[], bool] = lambda: False) -> int:
        """Run until SIGTERM or SIGINT, or until a worker cannot be kept alive; return the exit code.

        The first signal lets the workers drain, for 30 s at most in all; a second one ends them at once. `has_signal` says
        whether the first has come already.
        """
        self._heed_signals()
        if has_signal():  # Asked before the count is read: a signal that comes meanwhile is counted, too.
            self._signals += 1
        while any(slot.is_running or slot.starts_at is not None for slot in self._slots) or self._is_draining_beside():
            self._start_who_is_due()
            self._listen()
            self._look()
            self._execute_orders()
            self._reap()
        for each in self._side:
            each.stop()
        signal.alarm(0)
        # All workers have ended: a further signal must not change the exit code.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if self._failure is not None:
            return self._failure
        if self._signals > 1 and not self._starts_again:
            return 128 + self._last_signal
        return ExitCode.FAILED if any(self._last_codes) else ExitCode.DONE

    def _heed_signals(self) -> None:
        """Let signals only be counted and wake the loop: they interrupt nothing half-way."""
        for descriptor in (self._woken, self._waking):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM, signal.SIGCHLD):
            signal.signal(number, self._mark)

    def _mark(self, number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGALRM:
            self._is_late = True
        elif number != signal.SIGCHLD:
            self._signals += 1
            self._last_signal = number

    def _execute_orders(self) -> None:
        if self._signals and not self._is_draining:
            self._drain()
        if self._signals > 1 or self._is_late:
            for each in self._drained:
                each.kill()

    def _drain(self) -> None:
        self._is_draining = True
        signal.alarm(_DRAIN_SECONDS)
        for each in self._drained:
            each.drain()

    def _start_who_is_due(self) -> None:
        for slot in self._slots:
            if slot.starts_at is not None and slot.starts_at <= monotonic():
                slot.start()
        for side in self._side if not self._is_draining else ():
            side.start_if_due()

    def _listen(self) -> None:
        """Wait until a worker writes or ends, a signal comes, or the next start or look is due."""
        due = [slot.starts_at - monotonic() for slot in self._slots if slot.starts_at is not None]
        due += [slot.look_seconds for slot in self._slots if slot.look_seconds is not None]
        due += [side.starts_at - monotonic() for side in self._side if side.starts_at is not None and not self._is_draining]
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for each in self._all:
                if each.output is not None:
                    selector.register(each.output, selectors.EVENT_READ, each)
            ready = selector.select(max(0.0, min(due)) if due else None)
        for key, _ in ready:
            if key.data is not None:
                key.data.listen()
            else:
                os.read(self._woken, 4_096)

    def _look(self) -> None:
        for slot in self._slots:
            slot.look()

    def _reap(self) -> None:
        for slot in self._slots:
            code = slot.find_end()
            if code is not None:
                self._note_end(slot, code)
        for side in self._side:
            side.reap()

    def _is_draining_beside(self) -> bool:
        return self._is_draining and any(each.is_running for each in self._beside)

    def _note_end(self, slot: WorkerSlot, code: int) -> None:
        if self._is_draining:
            # A signal to the whole group may end a worker that has just been started, before it knows how to drain, and is the
            # second one of a worker that an operator ordered to end. Only a second signal to the service cuts its end short.
            self._last_codes.append(0 if was_ordered(code) and self._signals < 2 else code)
        elif not self._starts_again and not slot.has_poison:
            self._fail(code if code >= 0 else 128 - code)
        elif code in _FINAL and not slot.has_poison:
            _log.error("%s ended with exit code %d; a restart cannot help, so the service stops", slot.name, code)
            self._fail(ExitCode(code))
        elif not slot.note_exit(code):
            self._fail(ExitCode.FAILED)

    def _fail(self, code: int) -> None:
        self._failure = code
        self._drain()
