"""A delivery worker: one process that reads sources into the ledger and delivers to all receivers, each by its scheduler."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count
from threading import Event
from typing import NamedTuple, Protocol, TypeVar

from notification_service.delivery.caller import Caller, CallTally, Network
from notification_service.delivery.core.answers import outcome_of
from notification_service.delivery.core.jobs import Claim, GateReport
from notification_service.delivery.direct.receiver import DirectReceiver, DirectReport
from notification_service.delivery.errors import LedgerUnavailable
from notification_service.delivery.ledger.claims import lease_ms
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.schedules.runner import ScheduleReport, ScheduleRunner
from notification_service.delivery.settings import Step, WorkerSettings
from notification_service.delivery.source_reader import SourceReader, Sources
from resequencer.errors import ResequencerError

_LOG = logging.getLogger("resequencer.delivery")
_Found = TypeVar("_Found")
_GATHER_SECONDS = 0.004
"""Outcomes within this time are written together: a transaction takes about as long."""

_UNAVAILABLE_SECONDS = 1.0


class LedgerThreads:
    """Runs calls of the ledger beside the event loop, and repeats those that find it unavailable."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.problem: str | None = None
        """Why the ledger does not answer; None while it does."""

    async def run(self, call: Callable[[], _Found]) -> _Found:
        """Return what the call returns, however long the ledger is unavailable."""
        while True:
            try:
                found = await asyncio.get_running_loop().run_in_executor(self._executor, call)
            except LedgerUnavailable as error:
                if self.problem is None:
                    _LOG.warning("%s; waiting for it", error)
                self.problem = str(error)
                await asyncio.sleep(_UNAVAILABLE_SECONDS)
                continue
            if self.problem is not None:
                _LOG.info("the delivery ledger is available again")
                self.problem = None
            return found


class Scheduler:
    """Any number of schedulers, in any number of processes, may serve one receiver.

    A step has a loop of its own, so that calls of one step do not wait for those of another. After a crash the leases of its
    claims end, and the rows are claimed again.
    """

    def __init__(
        self, ledger: Ledger, threads: LedgerThreads, name: str, settings: WorkerSettings, owner: str, caller: Caller
    ) -> None:
        self._ledger, self._threads, self._caller = ledger, threads, caller
        self._name, self._settings, self._owner = name, settings, owner
        self._passed = ledger.database.clock.passed
        receiver = self._receiver = ledger.receivers[name]
        self._wake = {step: asyncio.Event() for step in receiver.steps.all}
        self._results: asyncio.Queue[ClaimResult] = asyncio.Queue()
        self._calls: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    def wake(self) -> None:
        """Look for work now."""
        for event in self._wake.values():
            event.set()

    async def run(self) -> None:
        """Run until `stop` was called, and what was under way has ended."""
        try:
            # If outcomes cannot be written any more, nothing more is claimed.
            async with asyncio.TaskGroup() as writing:
                writer = writing.create_task(self._write_results())
                async with asyncio.TaskGroup() as group:
                    for step in self._wake:
                        group.create_task(self._claim(step))
                if self._calls:
                    await asyncio.wait(self._calls)
                await self._results.join()
                writer.cancel()
        finally:
            for call in self._calls:
                call.cancel()

    def stop(self) -> None:
        """Claim nothing more."""
        self._is_stopping = True
        self.wake()

    async def _claim(self, step: Step) -> None:
        pause_ms = self._settings.poll_ms
        while not self._is_stopping:
            self._wake[step].clear()
            wanted = min(self._settings.chunk, max(self._receiver.concurrency, 1)) - len(self._calls)
            if wanted <= 0:
                await self._wait(step, self._settings.poll_ms)
                continue
            # Before the claim: the lease is counted from then on at the latest.
            until = self._passed() + lease_ms(self._receiver) - self._receiver.timeout_ms
            claimed = await self._threads.run(lambda wanted=wanted: self._ledger.claim(self._name, step, self._owner, wanted))  # type: ignore[misc]
            for claim in claimed.claims:
                call = asyncio.create_task(self._deliver(claim, until))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)
            if claimed.claims:
                pause_ms = self._settings.poll_ms
                await self._wait(step, self._settings.poll_ms)
                continue
            known = pause_ms if claimed.wait_ms is None else min(claimed.wait_ms, pause_ms)
            await self._wait(step, known)
            pause_ms = min(2 * pause_ms, self._settings.max_poll_ms)

    async def _wait(self, step: Step, milliseconds: int) -> None:
        try:
            async with asyncio.timeout(max(milliseconds, 1) / 1_000):
                await self._wake[step].wait()
        except TimeoutError:
            pass

    async def _deliver(self, claim: Claim, until: int) -> None:
        if self._passed() > until:
            # This process stood still for so long that the call could outlast its lease, and another process may call by now.
            return
        reply = await self._caller.call(claim)
        chance = random.random()  # noqa: S311 - Jitter is no secret.
        self._results.put_nowait(ClaimResult(claim, outcome_of(self._receiver, claim.step, reply, claim.tries, chance)))

    async def _write_results(self) -> None:
        while True:
            results = [await self._results.get()]
            await asyncio.sleep(_GATHER_SECONDS)
            while not self._results.empty() and len(results) < self._settings.chunk:
                results.append(self._results.get_nowait())
            finished = await self._threads.run(lambda results=results: self._ledger.finish(self._name, results))  # type: ignore[misc]
            if finished.refused:
                _LOG.warning("%d results for %s came after their lease; they change nothing", finished.refused, self._name)
            for _ in results:
                self._results.task_done()
            self.wake()


_UPKEEP_SECONDS = 1.0
_SCHEDULE_SECONDS = 5.0
"""How soon a schedule with a problem is tried again: each try asks the brokers or the ledger."""

_TURN_SECONDS = 0.1
_REPORT_TURNS = 10
_RETENTION_TURNS = 30
"""Retention looks once in so many turns of the upkeep."""

_DRAIN_SECONDS = 20.0
_THREADS, _SOURCE_THREADS = 4, 16


class Reporting(Protocol):
    """Is called every second with how the worker is doing."""

    def __call__(
        self,
        problem: str | None,
        gates: Sequence[GateReport],
        direct: Sequence[DirectReport],
        schedules: Sequence[ScheduleReport],
        tallies: Mapping[str, CallTally],
    ) -> object:
        """`problem` says why the ledger does not answer, a job takes nothing in, or events are not published; None: all is well.

        `gates` are the last ones that were read.

        `direct` are the receivers that are delivered to straight from topics. `tallies` has the calls of each receiver.
        """
        ...


class Others(NamedTuple):
    """What a delivery worker does besides the receivers of the ledger: receivers straight from topics, and schedules."""

    direct: Sequence[DirectReceiver] = ()
    schedules: Sequence[ScheduleRunner] = ()


class DeliveryWorker:
    """`owner` names the worker in its claims. `publish_events` publishes the events of jobs, and is called every second.

    Without a receiver of its own the ledger is not used.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: WorkerSettings,
        owner: str,
        sources: Sources,
        publish_events: Callable[[], object],
        forbidden: Sequence[Network] = (),
        others: Others = Others(),  # noqa: B008 - It never changes.
    ) -> None:
        self._ledger, self._settings, self._owner, self._sources = ledger, settings, owner, sources
        self._publish_events, self._forbidden = publish_events, forbidden
        self._direct, self._schedules = others
        self._is_stopping = Event()
        self._gates: Sequence[GateReport] = ()
        self._readers: list[SourceReader] = []
        self._tallies = {name: CallTally() for name in ledger.receivers} | {each.name: each.tally for each in self._direct}
        self._events_problem: str | None = None

    def run(self, is_stopping: Callable[[], bool], report: Reporting | None = None) -> None:
        """Deliver until `is_stopping`; then end what is under way."""
        asyncio.run(self._run(is_stopping, report))

    async def _run(self, is_stopping: Callable[[], bool], report: Reporting | None) -> None:
        # Sources and brokers that are slow must not keep claims and outcomes from the ledger.
        with ThreadPoolExecutor(_THREADS, "ledger") as executor, ThreadPoolExecutor(_SOURCE_THREADS, "sources") as slow:
            threads, sources = LedgerThreads(executor), LedgerThreads(slow)
            callers = {
                name: Caller(receiver, self._forbidden, self._tallies[name]) for name, receiver in self._ledger.receivers.items()
            }
            schedulers = {name: self._scheduler(threads, name, caller) for name, caller in callers.items()}
            running = [asyncio.create_task(each.run()) for each in schedulers.values()]
            running += [asyncio.create_task(each.run(slow)) for each in self._direct]
            others = [asyncio.create_task(self._read(sources, name, each.wake)) for name, each in schedulers.items()]
            if schedulers:
                others += [asyncio.create_task(self._keep_up(threads)), asyncio.create_task(self._publish(sources))]
            wakes = [each.wake for each in schedulers.values()]
            others += [asyncio.create_task(self._run_schedule(slow, each, wakes)) for each in self._schedules]
            try:
                for turn in count():
                    if is_stopping() or any(task.done() for task in (*running, *others)):
                        break
                    if report is not None and turn % _REPORT_TURNS == 0:
                        self._report(report, threads.problem)
                    await asyncio.sleep(_TURN_SECONDS)
            finally:
                self._is_stopping.set()
                errors = await _end(others)
                for scheduler in schedulers.values():
                    scheduler.stop()
                for receiver in self._direct:
                    receiver.stop()
                if running:
                    await asyncio.wait(running, timeout=_DRAIN_SECONDS)
                errors += await _end(running)
                for caller in callers.values():
                    await caller.close()
                slow.submit(self._close_schedules)
                if errors:
                    raise errors[0]

    def _report(self, report: Reporting, problem: str | None) -> None:
        problems = [problem, *(each.problem for each in self._readers), self._events_problem]
        report(
            next(filter(None, problems), None),
            self._gates,
            [each.report() for each in self._direct],
            [each.report() for each in self._schedules],
            self._tallies,
        )

    def _scheduler(self, threads: LedgerThreads, name: str, caller: Caller) -> Scheduler:
        return Scheduler(self._ledger, threads, name, self._settings, self._owner, caller)

    async def _read(self, threads: LedgerThreads, name: str, wake: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        taken = partial(loop.call_soon_threadsafe, wake)
        with closing(SourceReader(self._ledger, name, self._owner, self._sources, taken)) as reader:
            self._readers.append(reader)
            while True:
                if not await threads.run(reader.read):
                    await asyncio.sleep(self._settings.poll_ms / 1_000)

    async def _publish(self, threads: LedgerThreads) -> None:
        while True:
            try:
                await threads.run(self._publish_events)
                self._events_problem = None
            except (OSError, ResequencerError) as error:
                problem = f"the events of jobs wait: {error}"
                if problem != self._events_problem:
                    _LOG.warning("%s", problem)
                self._events_problem = problem
            await asyncio.sleep(_UPKEEP_SECONDS)

    def _close_schedules(self) -> None:
        for each in self._schedules:
            each.close()

    async def _run_schedule(self, executor: Executor, schedule: ScheduleRunner, wakes: Sequence[Callable[[], None]]) -> None:
        while True:
            try:
                loop = asyncio.get_running_loop()
                if await loop.run_in_executor(executor, schedule.look, self._is_stopping.is_set):
                    for wake in wakes:
                        wake()
                schedule.problem = None
            except (OSError, ResequencerError) as error:
                if str(error) != schedule.problem:
                    _LOG.warning("schedule %s waits: %s", schedule.name, error)
                schedule.problem = str(error)
            await asyncio.sleep(_UPKEEP_SECONDS if schedule.problem is None else _SCHEDULE_SECONDS)

    async def _keep_up(self, threads: LedgerThreads) -> None:
        for turn in count():
            for name in self._ledger.receivers:
                await threads.run(lambda name=name: self._ledger.go_on(name))  # type: ignore[misc]
            self._gates = await threads.run(self._ledger.gates)
            if turn % _RETENTION_TURNS == 0:
                for name in self._ledger.receivers:
                    while await threads.run(lambda name=name: self._ledger.fit_steps(name)):  # type: ignore[misc]
                        pass
                    await threads.run(lambda name=name: self._ledger.end_long_pauses(name))  # type: ignore[misc]
                while await threads.run(self._ledger.delete_expired):
                    pass
            await asyncio.sleep(_UPKEEP_SECONDS)


async def _end(tasks: list["asyncio.Task[None]"]) -> list[BaseException]:
    """Cancel what still runs; return the errors of those that ended by themselves."""
    for task in tasks:
        task.cancel()
    ends = await asyncio.gather(*tasks, return_exceptions=True)
    return [each for each in ends if isinstance(each, BaseException) and not isinstance(each, asyncio.CancelledError)]
