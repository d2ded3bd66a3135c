"""How users' code is called beside the turns: coroutines in a loop, and what is synchronous in threads of its own."""

from asyncio import CancelledError, current_task
from collections.abc import AsyncIterable, Callable
from typing import Any

from notification_service.wiring.call_runner import HandlingThreads
from resequencer.errors import PermanentError, TransientError
from resequencer.event import Event
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
