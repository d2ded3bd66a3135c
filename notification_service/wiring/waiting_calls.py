"""How users' code is called beside the turns: coroutines in a loop, and what is synchronous in threads of its own."""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, current_task, get_running_loop, shield
from collections.abc import AsyncIterable, Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from resequencer.errors import PermanentError, TransientError
from resequencer.event import Event
from resequencer.in_flight import CallKind, InFlight
from resequencer.users_code import Way, call_guarded, failure_of, is_async


async def await_it(who: str, event: Event, call: Callable[[], Any], finish: Callable[[Any], Any]) -> Any:
    """Await a coroutine, or what an async generator yields, as a list. `resequencer.users_code.Way`.

    `CancelledError` passes if the task is cancelled; the user's own is a failure like others.
    """
    del event
    try:
        answer = call()
        if not isinstance(answer, AsyncIterable):
            answer = await answer
        return finish([each async for each in answer] if isinstance(answer, AsyncIterable) else answer)
    except (TransientError, GeneratorExit):  # The latter closes the coroutine.
        raise
    except BaseException as error:  # Foreign code may raise anything.
        task = current_task()
        is_cancelled = isinstance(error, CancelledError) and task is not None and task.cancelling()
        if is_cancelled or type(error) is PermanentError:
            raise
        raise failure_of(who, error) from error


class UsersCalls:
    """Calls users' code beside the turns: awaits what is async, and has so many `threads` for what is synchronous.

    At most `limit` calls may run at the same time.
    """

    def __init__(self, threads: HandlingThreads, count: int, concurrency: int) -> None:
        self.limit = concurrency
        self.threads = threads
        self._count = count

    def find_way(self, function: Callable[..., Any]) -> Way | None:
        """Return the way to call a user's function; None for one that is synchronous without threads."""
        if is_async(function):
            return await_it
        if not self._count:
            return None
        self.limit = min(self.limit, self._count)
        return self._call_in_thread

    async def _call_in_thread(self, who: str, event: Event, call: Callable[[], Any], finish: Callable[[Any], Any]) -> Any:
        return await self.threads.run(lambda: _guarded(who, lambda: finish(call())), event)


def _guarded(who: str, call: Callable[[], Any]) -> Any:
    try:
        return call_guarded(who, call, TransientError)
    except KeyboardInterrupt as error:
        raise failure_of(who, error) from error


class _Job(NamedTuple):
    function: Callable[[], Any]
    event: Event
    outcome: Future[Any]


class HandlingThreads:
    """Threads that call functions, one each at a time: as many as there are slots. None keeps the process from its end.

    A thread has the event of its call in its slot. They start with the first call.
    """

    def __init__(self, slots: Sequence[InFlight]) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [Thread(target=self._work, args=(each,), name="handling", daemon=True) for each in slots]
        self._has_started = False

    async def run(self, function: Callable[[], Any], event: Event) -> Any:
        """Call the function in the next free thread, for this event, and return or raise what it does.

        The coroutine ends only when the function has ended, also if it is cancelled, for nothing can end a thread. It then raises
        `CancelledError`, whatever came of the function. One that has not begun is not called then.
        """
        if not self._has_started:
            self._has_started = True
            for each in self._threads:
                each.start()
        loop, outcome = get_running_loop(), Future[Any]()
        ended = loop.create_future()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # The loop is closed: nothing waits any more.
                loop.call_soon_threadsafe(ended.set_result, None)

        outcome.add_done_callback(wake)
        self._jobs.put(_Job(function, event, outcome))
        try:
            await shield(ended)
        except CancelledError:
            if not outcome.cancel():
                await _in_any_case(ended)
            raise
        try:
            return outcome.result()
        finally:
            del outcome  # An error that it has would refer to this frame, and it to the error.

    def shutdown(self) -> None:
        """End the threads that have no call. The others end with their calls, or with the process."""
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self, slot: InFlight) -> None:
        while (job := self._jobs.get()) is not None:
            if job.outcome.set_running_or_notify_cancel():
                _execute(job, slot)
            del job  # Otherwise a thread without a call would keep the last one.


def _execute(job: _Job, slot: InFlight) -> None:
    try:
        slot.take(job.event, CallKind.HANDLING)
        try:
            made = job.function()
        finally:
            slot.clear()
    except BaseException as error:  # noqa: BLE001 - The task raises it.
        job.outcome.set_exception(error)
        del job  # Otherwise the error would refer to it, and it to the error.
    else:
        job.outcome.set_result(made)


async def _in_any_case(ended: asyncio.Future[None]) -> None:
    while not ended.done():
        with suppress(CancelledError):
            await shield(ended)
