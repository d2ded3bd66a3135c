"""A delivery worker: one process that reads sources into the ledger and delivers to all receivers."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count
from threading import Event
from typing import NamedTuple, Protocol

from notification_service.delivery.caller import Caller, Network
from notification_service.delivery.core.jobs import GateReport
from notification_service.delivery.direct.receiver import DirectReceiver, DirectReport
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.scheduler import LedgerThreads, Scheduler
from notification_service.delivery.schedules.runner import ScheduleReport, ScheduleRunner
from notification_service.delivery.settings import WorkerSettings
from notification_service.delivery.source_reader import SourceReader, Sources
from resequencer.errors import ResequencerError

_LOG = logging.getLogger("resequencer.delivery")
_UPKEEP_SECONDS = 1.0
_SCHEDULE_SECONDS = 5.0
"""How soon a schedule that cannot go on is tried again: each try asks the brokers or the ledger."""

_TURN_SECONDS = 0.1
_REPORT_TURNS = 10
_RETENTION_TURNS = 30
"""Retention looks once in so many turns of the upkeep."""

_DRAIN_SECONDS = 20.0
_THREADS, _SOURCE_THREADS = 4, 16


class Reporting(Protocol):
    """Is told every second how the worker does."""

    def __call__(
        self,
        problem: str | None,
        gates: Sequence[GateReport],
        direct: Sequence[DirectReport],
        schedules: Sequence[ScheduleReport],
    ) -> object:
        """`problem` says why the ledger does not answer, a job takes nothing in, or events are not published; None: all is well.

        `gates` are the last ones that were read.

        `direct` are the receivers that are delivered to straight from topics.
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
        self._events_problem: str | None = None

    def run(self, is_stopping: Callable[[], bool], report: Reporting | None = None) -> None:
        """Deliver until `is_stopping`; then end what is under way."""
        asyncio.run(self._run(is_stopping, report))

    async def _run(self, is_stopping: Callable[[], bool], report: Reporting | None) -> None:
        # Sources and brokers that are slow must not keep claims and outcomes from the ledger.
        with ThreadPoolExecutor(_THREADS, "ledger") as executor, ThreadPoolExecutor(_SOURCE_THREADS, "sources") as slow:
            threads, sources = LedgerThreads(executor), LedgerThreads(slow)
            callers = {name: Caller(receiver, self._forbidden) for name, receiver in self._ledger.receivers.items()}
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
        told = [problem, *(each.problem for each in self._readers), self._events_problem]
        report(
            next(filter(None, told), None),
            self._gates,
            [each.report() for each in self._direct],
            [each.report() for each in self._schedules],
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
                told = f"the events of jobs wait: {error}"
                if told != self._events_problem:
                    _LOG.warning("%s", told)
                self._events_problem = told
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
