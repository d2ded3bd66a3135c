"""Runs the calls of handlers that wait beside the worker's thread: coroutines in a loop of their own, functions in threads."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from guardian.calls import Ended
from resequencer.call import Call
from resequencer.clock import Instant
from resequencer.errors import TransientError
from resequencer.event import Event
from resequencer.handler import Handled, Marks
from resequencer.in_flight import CallKind, CallsInFlight, Slot

_T = TypeVar("_T")

_HANDLING = CallKind.HANDLING
_CLOSE_SECONDS = 1.0

_HANDLED: ContextVar[Event | None] = ContextVar("handled", default=None)
"""The event whose call is executed. A task or a function in a thread that the call begins is of this event, too."""


class HandlingThreads(ThreadPoolExecutor):
    """Threads that keep no process from ending; the interpreter waits for those of the standard library when it ends.

    Each has a slot, and there are at most as many as slots; a thread begins when a function finds none that is free. A loop takes
    no other class than this one of the standard library for `asyncio.to_thread`.
    """

    def __init__(self, slots: Sequence[Slot]) -> None:
        super().__init__()
        self._unused, self._begun = list(slots), 0
        self._queue: SimpleQueue[tuple[Future[Any], Event | None, Callable[[], Any]] | None] = SimpleQueue()
        self._free = threading.Semaphore(0)
        self._lock = threading.Lock()

    async def run(self, function: Callable[[], _T], event: Event) -> _T:
        """Call the function in a thread, for this event, and return or raise what it does.

        If this is cancelled, it ends when the function has really ended. A function that has not begun is then not called.
        """
        future = self._begin(partial(_outcome_of, function), event)
        answer: asyncio.Future[tuple[_T, BaseException | None]] = asyncio.wrap_future(future)
        try:
            returned, raised = await asyncio.shield(answer)
        except asyncio.CancelledError:
            if not future.cancel():
                while not answer.done():
                    with suppress(asyncio.CancelledError):
                        await asyncio.wait([answer])
            raise
        if raised is None:
            return returned
        try:
            raise raised
        finally:
            del raised, answer, future  # They would refer to the error, and it to this frame.

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._begin(partial(fn, *args, **kwargs), _HANDLED.get())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end that are free, and the others after their function. Never waits."""
        del wait, cancel_futures
        for _ in range(self._begun):
            self._queue.put(None)

    def _begin(self, function: Callable[[], Any], event: Event | None) -> Future[Any]:
        future: Future[Any] = Future()
        self._queue.put((future, event, function))
        if not self._free.acquire(blocking=False):
            try:
                self._add_thread()
            except RuntimeError as error:
                if future.cancel():
                    raise TransientError(f"the machine has no thread for a call: {error}") from error
        return future

    def _add_thread(self) -> None:
        with self._lock:
            if self._unused:
                threading.Thread(target=self._live, args=(self._unused[0],), name="handling", daemon=True).start()
                del self._unused[0]
                self._begun += 1

    def _live(self, slot: Slot) -> None:
        while (taken := self._queue.get()) is not None:
            self._take(slot, *taken)
            del taken  # Nothing of a call stays with a thread that waits for the next one.
            self._free.release()

    def _take(self, slot: Slot, future: Future[Any], event: Event | None, function: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        returned, raised = _outcome_of(function if event is None else partial(_noted, slot, event, function))
        if raised is not None:
            future.set_exception(raised)
        else:
            future.set_result(returned)
        del raised, returned, future  # As above.


def _noted(slot: Slot, event: Event, function: Callable[[], _T]) -> _T:
    slot.take(event, _HANDLING)
    try:
        return function()
    finally:
        slot.clear()


def _outcome_of(function: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Call the function, and return what it returns and what it raises. A future of a loop cannot take each error."""
    try:
        return function(), None
    except BaseException as error:  # noqa: BLE001 - Foreign code may raise anything.
        return None, error


class _Steps(Coroutine[Any, Any, Any]):
    """A coroutine whose event is in the slot during each step."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], event: Event, slot: Slot) -> None:
        self._coroutine = coroutine
        self._event = event
        self._slot = slot
        self.ended_at = 0.0

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def _step(self, advance: Callable[..., Any], *given: Any) -> Any:
        self._slot.take(self._event, _HANDLING)
        try:
            return advance(*given)
        except BaseException:
            self.ended_at = monotonic()
            raise
        finally:
            self._slot.clear()

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()


class CallRunner:
    """Runs calls in the loop of a thread, which begins with the first call. Only the worker's thread uses the methods.

    `make` makes the coroutine of a call, in the worker's thread. `wake` is called from any thread when a call has ended.
    Tasks that a call makes are noted for its event, and `asyncio.to_thread` uses `threads`.
    """

    def __init__(
        self,
        make: Callable[[Event, Any, Marks, Instant], Coroutine[Any, Any, Handled]],
        in_flight: CallsInFlight,
        threads: HandlingThreads,
        wake: Callable[[], object],
    ) -> None:
        self._make = make
        self._in_flight = in_flight
        self._step, self._overdue_slot, _ = in_flight.beside
        self._threads = threads
        self._wake = wake
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._live, name="coroutines", daemon=True)
        self._is_closing = self._is_stopped = False
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        """Of the two below, which both threads change, and of the slot of the overdue."""
        self._running: dict[Call, asyncio.Task[Handled] | None] = {}
        self._overdue: dict[Call, None] = {}
        self._ended: deque[Ended] = deque()
        self._has_ended = threading.Event()

    def must_be_alone(self, call: Call) -> bool:
        return self._in_flight.is_suspect(call.envelope)

    def start(self, call: Call) -> None:
        """Begin the call.

        Raises:
            RuntimeError: The loop has ended, so no call can be made any more.
        """
        loop = self._find_loop()
        try:
            self._in_flight.admit(call.envelope)
            coroutine = self._make(call.envelope, call.data, call.marks, call.now)
        except Exception as error:  # noqa: BLE001 - It is the call's outcome, as in a turn.
            self._note(call, error, monotonic())
            return
        with self._lock:
            self._running[call] = None
        loop = loop or self._open()
        loop.call_soon_threadsafe(self._begin, call, _Steps(coroutine, call.envelope, self._step))

    def cancel(self, call: Call) -> None:
        """Ask the call to end. From now on it is overdue: the supervisor ends a worker in which one is for too long."""
        with self._lock:
            if call not in self._running or call in self._overdue:
                return
            self._overdue[call] = None
            if len(self._overdue) == 1:
                self._overdue_slot.take(call.envelope, _HANDLING)
        loop = self._find_loop()
        assert loop is not None
        loop.call_soon_threadsafe(self._cancel, call)

    @property
    def has_ended(self) -> bool:
        return bool(self._ended)

    def ended(self) -> Sequence[Ended]:
        """Return the calls that have ended.

        Raises:
            RuntimeError: The loop has ended, so other calls never end.
        """
        self._has_ended.clear()
        found = [self._ended.popleft() for _ in range(len(self._ended))]
        for call, outcome, _ in found:
            if not isinstance(outcome, TransientError | asyncio.CancelledError):
                self._in_flight.settle(call.envelope)
        if not found:
            self._find_loop()
        return found

    def wait(self, seconds: float) -> None:
        self._has_ended.wait(seconds)

    def close(self) -> None:
        """Cancel what runs, and wait for its end, a second at most. What goes on ends with the process."""
        loop, self._is_closing = self._loop, True
        if loop is not None and self._thread.is_alive():
            with suppress(RuntimeError):  # The thread has just ended.
                loop.call_soon_threadsafe(self._end_all)
            self._thread.join(_CLOSE_SECONDS)

    def _find_loop(self) -> asyncio.AbstractEventLoop | None:
        """Return the loop; None before the first call. Raise an error if it has ended."""
        if self._loop is not None and not self._thread.is_alive() and not self._is_closing:
            raise RuntimeError("the thread of coroutines has ended, so no call of a handler can be made") from self._failure
        return self._loop

    def _open(self) -> asyncio.AbstractEventLoop:
        loop = self._loop = asyncio.new_event_loop()
        loop.set_default_executor(self._threads)
        loop.set_task_factory(self._new_task)
        self._thread.start()
        return loop

    # What follows is executed in the loop's thread.

    def _live(self) -> None:
        loop = self._loop
        assert loop is not None
        try:
            while not self._is_stopped:  # A call may stop the loop, and the loop stops if a call raises one of these.
                with suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
        except BaseException as error:  # noqa: BLE001 - It ends the worker, by its own thread.
            self._failure = error
        finally:
            loop.close()
            self._tell()

    def _begin(self, call: Call, steps: _Steps) -> None:
        context = copy_context()
        context.run(_HANDLED.set, call.envelope)
        task = context.run(asyncio.Task, steps, loop=self._loop)
        with self._lock:
            self._running[call] = task
        task.add_done_callback(partial(self._note_end, call, steps))

    def _new_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
        event = _HANDLED.get()
        if event is not None and asyncio.iscoroutine(coroutine):
            coroutine = _Steps(coroutine, event, self._step)
        return asyncio.Task(coroutine, loop=loop, **more)

    def _cancel(self, call: Call) -> None:
        with self._lock:
            task = self._running.get(call)
        if task is not None:
            # Its first step comes before: what the coroutine does at its end would be missing without its beginning.
            task.get_loop().call_soon(task.cancel)

    def _note_end(self, call: Call, steps: _Steps, task: asyncio.Task[Handled]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._note(call, task.result() if error is None else error, steps.ended_at or monotonic())

    def _note(self, call: Call, outcome: Handled | BaseException, at: float) -> None:
        with self._lock:
            self._running.pop(call, None)
            if call in self._overdue:
                self._forget_overdue(call)
        self._ended.append(Ended(call, outcome, at))
        self._tell()

    def _tell(self) -> None:
        self._has_ended.set()
        if not self._is_closing:
            self._wake()

    def _forget_overdue(self, call: Call) -> None:
        is_shown = next(iter(self._overdue)) is call
        del self._overdue[call]
        if is_shown:
            self._overdue_slot.clear()
            for oldest in self._overdue:
                self._overdue_slot.take(oldest.envelope, _HANDLING)
                break

    def _end_all(self) -> None:
        """Cancel all tasks, and stop the loop when they have ended."""
        assert self._loop is not None
        tasks = asyncio.all_tasks(self._loop)
        self._closing = self._loop.create_task(self._stop_after(tasks))

    async def _stop_after(self, tasks: set[asyncio.Task[Any]]) -> None:
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)
        loop, self._is_stopped = asyncio.get_running_loop(), True
        await loop.shutdown_asyncgens()
        loop.stop()
