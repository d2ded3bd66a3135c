"""The scheduler of one receiver: claims what is due, makes the calls, and writes the outcomes."""

import asyncio
import logging
import random
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

from notification_service.delivery.caller import Caller
from notification_service.delivery.core.answers import outcome_of
from notification_service.delivery.core.jobs import Claim
from notification_service.delivery.errors import LedgerUnavailable
from notification_service.delivery.ledger.claims import lease_ms
from notification_service.delivery.ledger.finishing import ClaimResult
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.settings import Step, WorkerSettings

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
