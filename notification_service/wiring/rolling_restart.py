"""`resequencer restart --rolling`: the workers of a service that runs, one after another, while the others work.

The supervisor starts a worker in place of each that is ordered to end. So this process may be killed at any moment: at most one
worker is on its way then, and the supervisor starts it all the same.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from notification_service.configuration.configuration import Configuration
from notification_service.status.report import State, StatusReport
from notification_service.status.service_report import ServiceReport
from notification_service.supervision.exit_code import ExitCode
from notification_service.supervision.locks import AlreadyRunning, RunLock, RunningService, find_service
from notification_service.supervision.started import Started, started_file
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.local_workers import LocalWorkers
from resequencer.errors import ResequencerError
from resequencer.printable import counted

_LOOK_SECONDS = 0.2
_WORKER_SECONDS = 120
"""How long a worker may take: it drains for 30 s at most, pauses, starts, and the group hands partitions over twice."""
_STEADY_SECONDS, _STANDBY_SECONDS = 2, 10
"""How long all must be ready before the next worker ends; longer if the new one got no partition: the group may not be done."""


class RollingRefused(ResequencerError):
    """The workers cannot be restarted one after another, or not all of them were."""


class Rolling:
    """Restarts the workers. `look` finds the service, `end` orders the worker in a slot to end, `tell` gets the progress.

    `seconds` is a steady clock, and `pause` waits until the next look.
    """

    def __init__(
        self,
        look: Callable[[], RunningService],
        end: Callable[[int], bool],
        tell: Callable[[str], object],
        seconds: Callable[[], float] = monotonic,
        pause: Callable[[], object] = lambda: sleep(_LOOK_SECONDS),
    ) -> None:
        self._look = look
        self._end = end
        self._tell = tell
        self._seconds = seconds
        self._pause = pause
        self._holder = look().holder
        self._done = 0

    def restart(self, count: int) -> None:
        """Restart the workers in the slots from 0 to `count` - 1.

        Raises:
            RollingRefused: One of them was not ready in time, or the service has ended. The workers behind it are as they were.
        """
        hindrance = self._find_standing(None).hindrance
        if hindrance is not None:
            raise RollingRefused(f"{hindrance}: a rolling restart begins when all workers are ready")
        for slot in range(count):
            before, began_at = self._worker(slot), self._seconds()
            if not self._end(slot):
                raise self._failed(f"worker {slot} cannot be ordered to end", count)
            self._tell(f"worker {slot}: ends, {slot + 1} of {count}")
            try:
                self._wait_until_ready(before)
            except _NotReady as error:
                raise self._failed(str(error), count) from error
            self._done += 1
            held = counted(len(self._worker(slot).partitions), "partition")
            self._tell(f"worker {slot}: ready after {self._seconds() - began_at:.0f} s, {held}")

    def _wait_until_ready(self, before: StatusReport) -> None:
        until, since = self._seconds() + _WORKER_SECONDS, None
        while True:
            standing = self._find_standing(before)
            since = (self._seconds() if since is None else since) if standing.hindrance is None else None
            if since is not None and self._seconds() - since >= standing.steady_seconds:
                return
            if standing.is_final or self._seconds() >= until:
                raise _NotReady(standing.hindrance or "the group has not settled")
            self._pause()

    def _find_standing(self, before: StatusReport | None) -> "_Standing":
        """Say what is missing until the next worker may end; `before` is the last report of the worker that was restarted."""
        found = self._look()
        if found.holder is None or found.holder != self._holder or found.report is None:
            return _Standing("the service has ended", is_final=True)
        if before is not None:
            new = found.report.workers[before.slot][1]
            if new.restarts > before.restarts + 1:
                return _Standing(f"worker {new.slot} ended again: it {new.last_exit}", is_final=True)
            if new.worker_process_id in (None, before.worker_process_id):
                return _Standing(f"worker {before.slot} has not started again")
            if before.partitions and not new.partitions:
                return _Standing(_find_hindrance(found.report), steady_seconds=_STANDBY_SECONDS)
        return _Standing(_find_hindrance(found.report))

    def _worker(self, slot: int) -> StatusReport:
        found = self._look().report
        if found is None:
            raise RollingRefused("the service has ended")
        return found.workers[slot][1]

    def _failed(self, why: str, count: int) -> RollingRefused:
        return RollingRefused(
            f"{why}. The rolling restart stops here: {self._done} of {count} workers were restarted, those behind it were not."
            " `resequencer status` and `resequencer logs` say more; the same command begins again"
        )


class _NotReady(RollingRefused):
    pass


class _Standing(NamedTuple):
    """`hindrance` is None if all is as it should be, for `steady_seconds`. If it `is_final`, waiting does not help."""

    hindrance: str | None
    is_final: bool = False
    steady_seconds: int = _STEADY_SECONDS


def _find_hindrance(service: ServiceReport) -> str | None:
    """Return why no worker may end now: one is not ready, or a partition is not taken over yet."""
    for state, each in service.workers:
        if state != State.READY:
            return f"worker {each.slot} is {state}" + (f": {each.reason}" if each.reason else "")
    return next((f"{each.partition} is not taken over yet: {each.reason}" for each in service.whole.untaken), None)


def restart_rolling(configuration: Configuration, options: Sequence[str]) -> ExitCode:
    """Restart the workers of the service that runs with this configuration, one after another. `options` are this command's.

    Raises:
        RollingRefused: It cannot be done so, or it stopped on its way.
    """
    run_directory = configuration.notification.run_directory

    def look() -> RunningService:
        return find_service(run_directory, SystemClock().now())

    with _alone(run_directory):
        service = look()
        _refuse_what_needs_more(service, configuration, options)
        count = configuration.worker_count
        Rolling(look, LocalWorkers(configuration).restart, _tell).restart(count)
    _tell(f"restarted {counted(count, 'worker')}, one after another; the supervisor and what runs beside the workers were not")
    return ExitCode.DONE


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextmanager
def _alone(run_directory: Path) -> Iterator[None]:
    """Let no other rolling restart run meanwhile: two could end two workers at once."""
    if not run_directory.is_dir():
        raise RollingRefused(f"{run_directory} does not exist, so no service runs: start it")
    lock = RunLock(run_directory, "rolling")
    try:
        lock.acquire()
    except AlreadyRunning as error:
        raise RollingRefused(f"another rolling restart is under way, process {error.holder}") from error
    try:
        yield
    finally:
        lock.release()


def _refuse_what_needs_more(service: RunningService, configuration: Configuration, options: Sequence[str]) -> None:
    started = (
        None if service.process_id is None else started_file(configuration.notification.run_directory).find(service.process_id)
    )
    if service.report is None or service.process_id is None:
        raise RollingRefused(f"the service is {service.state}: start it")
    now = Started.with_these(configuration)
    if started is None or started.program != now.program:
        raise _needs_a_whole_restart("the program was replaced since the service was started")
    differences = list(started.differences(now))
    if differences:
        raise _needs_a_whole_restart("; ".join(differences))
    if configuration.worker_count < 2:
        raise _needs_a_whole_restart("the service has one worker, so nothing would be processed meanwhile")
    if not _has_options_of(service.report, options):
        raise RollingRefused(
            "the service was started with another --config or --set, which new workers get, too: give the same,"
            " or restart all workers at once with `resequencer restart`"
        )


def _needs_a_whole_restart(why: str) -> RollingRefused:
    return RollingRefused(f"{why}. A rolling restart cannot do that: `resequencer restart` restarts all workers at once")


def _has_options_of(service: ServiceReport, ours: Sequence[str]) -> bool:
    """Return whether the workers were started with the same file and the same overrides as this command."""
    for _, each in service.workers:
        try:
            command = Path(f"/proc/{each.worker_process_id}/cmdline").read_bytes().decode().split("\0")
            directory = Path(f"/proc/{each.worker_process_id}/cwd").readlink()
            theirs = command[command.index("run") + 1 : command.index("--slot")]
        except (OSError, ValueError):
            continue  # A worker that is just being restarted.
        if (directory / theirs[1]).resolve() != Path(ours[1]).resolve() or theirs[2:] != [*ours[2:]]:
            return False
    return True
