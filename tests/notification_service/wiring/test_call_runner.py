"""Calls beside the worker's thread, in a real loop and in real threads: what they raise, how they end, and what is in flight."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any
from weakref import ref

import pytest
from harness.driving import Envelopes
from harness.waiting import wait_until

from guardian.backoff import LogRateLimit
from guardian.calls import Ended
from notification_service.supervision.in_flight_memory import InFlightMemory
from notification_service.supervision.suspects import EXITS_OF_ONE, Suspects
from notification_service.supervision.system_clock import SystemClock
from notification_service.wiring.call_runner import CallRunner, HandlingThreads
from notification_service.wiring.handlers import HandlingLog
from notification_service.worker.worker import WorkerInFlight
from resequencer.call import Call
from resequencer.errors import DependencyUnavailable, EndedItsWorker, PermanentError, TransientError
from resequencer.handler import Handled, Marks
from resequencer.in_flight import CallKind

Body = Callable[[Any], Coroutine[Any, Any, Handled]]
DONE = Handled(unmatched=7)


class Stage:
    """A runner whose calls execute the body that a test gives with each, and the memory that it shares with a supervisor."""

    def __init__(self, directory: Any, threads: int = 3) -> None:
        self.memory = InFlightMemory()
        self.suspects = Suspects(directory)
        self.in_flight = WorkerInFlight(self.memory, self.suspects)
        self.threads = HandlingThreads(self.memory.threads[:threads])
        self.wakes = 0
        self.runner = CallRunner(self.make, self.in_flight, self.threads, self.wake)
        self.new_envelope = Envelopes()
        self.found: list[Ended] = []

    def make(self, envelope: Any, data: Any, marks: Marks, now: int) -> Coroutine[Any, Any, Handled]:
        body: Body = data
        return body(envelope)

    def wake(self) -> None:
        self.wakes += 1

    def call(self, body: Any) -> Call:
        return Call(self.new_envelope(), body, Marks(), 17)

    def start(self, *bodies: Body) -> list[Call]:
        calls = [self.call(body) for body in bodies]
        for each in calls:
            self.runner.start(each)
        return calls

    def wait_for(self, count: int = 1) -> list[Ended]:
        """Return what has ended, in order of the calls."""
        wait_until(lambda: self.found.extend(self.runner.ended()) or len(self.found) >= count, "calls end", look_seconds=0)
        return sorted(self.found, key=lambda each: each.call.envelope.offset)

    def outcome(self, body: Body) -> Handled | BaseException:
        (call,) = self.start(body)
        (ended,) = self.wait_for()
        assert ended.call is call
        return ended.outcome

    @property
    def executed(self) -> list[int]:
        return sorted(each.origin.offset for each in self.memory.find_executed())


@pytest.fixture
def stage(tmp_path: Any) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.runner.close()
    made.threads.shutdown()


async def done(_: Any) -> Handled:
    return DONE


def test_no_thread_begins_before_the_first_call(stage: Stage) -> None:
    assert stage.runner.ended() == []
    stage.runner.close()
    assert not stage.runner._thread.is_alive()


def test_a_call_ends_with_what_its_coroutine_returns_and_wakes_the_worker(stage: Stage) -> None:
    assert stage.outcome(done) is DONE
    assert stage.wakes == 1
    assert stage.runner.ended() == []


@pytest.mark.parametrize(
    "error",
    [
        TransientError("away"),
        PermanentError("never"),
        ValueError("a mistake"),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        MemoryError(),
    ],
    ids=repr,
)
def test_whatever_it_raises_is_its_outcome_and_the_next_call_is_made(stage: Stage, error: BaseException) -> None:
    async def fail(_: Any) -> Handled:
        await asyncio.to_thread(int)
        raise error

    assert type(stage.outcome(fail)) is type(error)
    stage.found.clear()
    assert stage.outcome(done) is DONE


def test_a_call_that_stops_the_loop_stops_no_other(stage: Stage) -> None:
    async def stop(_: Any) -> Handled:
        asyncio.get_running_loop().stop()
        await asyncio.to_thread(int)
        return DONE

    assert stage.outcome(stop) is DONE


def test_calls_run_side_by_side(stage: Stage) -> None:
    met = asyncio.Barrier(50)

    async def meet(_: Any) -> Handled:
        await met.wait()
        return DONE

    stage.start(*[meet] * 50)
    assert [each.outcome for each in stage.wait_for(50)] == [DONE] * 50


def test_it_ends_at_the_instant_at_which_the_coroutine_does_however_late_it_is_taken_up(stage: Stage) -> None:
    stage.start(done)
    stage.runner.wait(60)
    first = stage.runner.ended()
    stage.start(done)
    stage.runner.wait(60)
    assert first[0].at <= stage.runner.ended()[0].at


def test_a_handler_that_cannot_even_be_called_is_an_outcome(stage: Stage) -> None:
    stage.runner.start(stage.call(None))
    (ended,) = stage.runner.ended()
    assert isinstance(ended.outcome, TypeError)


def waiting(stage: Stage, begun: threading.Event) -> Body:
    async def wait(_: Any) -> Handled:
        begun.set()
        await asyncio.Event().wait()
        return DONE

    return wait


def test_a_cancelled_call_is_returned_when_it_has_ended(stage: Stage) -> None:
    ends = []

    async def clean_up(_: Any) -> Handled:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("cleaned up")
        return DONE

    calls = stage.start(clean_up, clean_up)
    for each in calls:
        stage.runner.cancel(each)  # Maybe before its first step: also then it begins, and so ends.
        stage.runner.cancel(each)
    assert [type(each.outcome) for each in stage.wait_for(2)] == [asyncio.CancelledError] * 2
    assert ends == ["cleaned up"] * 2
    stage.runner.cancel(calls[0])
    assert stage.memory.overdue.find() is None


def test_a_cancelled_call_that_does_not_end_is_overdue_until_it_has(stage: Stage) -> None:
    goes_on, begun = asyncio.Event(), threading.Event()

    async def resist(_: Any) -> Handled:
        begun.set()
        while not goes_on.is_set():
            with suppress(asyncio.CancelledError):
                await goes_on.wait()
        return DONE

    calls = stage.start(resist, resist)
    for each in calls:
        stage.runner.cancel(each)
    assert stage.memory.overdue.find().origin.offset == calls[0].envelope.offset
    assert stage.memory.overdue.call == 1
    stage.runner._loop.call_soon_threadsafe(goes_on.set)
    assert [each.outcome for each in stage.wait_for(2)] == [DONE] * 2
    assert stage.memory.overdue.find() is None


def test_the_end_of_all_cancels_what_runs_and_is_not_long_delayed_by_what_goes_on(stage: Stage, monkeypatch: Any) -> None:
    monkeypatch.setattr("notification_service.wiring.call_runner._CLOSE_SECONDS", 0.05)
    release, begun, in_thread = threading.Event(), threading.Event(), threading.Event()

    def hang() -> Handled:
        in_thread.set()
        release.wait()
        return DONE

    async def hang_in_a_thread(envelope: Any) -> Handled:
        return await stage.threads.run(hang, envelope)

    stage.start(waiting(stage, begun), hang_in_a_thread)
    assert begun.wait(60)
    assert in_thread.wait(60)
    stage.runner.close()
    (ended,) = stage.wait_for()
    assert isinstance(ended.outcome, asyncio.CancelledError)
    assert all(each.daemon for each in threading.enumerate() if each.name in ("coroutines", "handling"))
    release.set()
    stage.wait_for(2)
    stage.runner._thread.join(60)
    assert not stage.runner._thread.is_alive()


def test_a_loop_that_has_ended_all_the_same_ends_the_worker(stage: Stage) -> None:
    stage.outcome(done)
    loop = stage.runner._loop
    loop.call_soon_threadsafe(setattr, loop, "_run_once", None)
    stage.runner._thread.join(60)
    assert stage.wakes == 2
    stage.runner.wait(60)
    with pytest.raises(RuntimeError, match="no call of a handler can be made"):
        stage.runner.ended()
    with pytest.raises(RuntimeError, match="no call of a handler can be made"):
        stage.runner.start(stage.call(done))


# What is in flight


def test_each_step_is_in_flight_and_what_waits_is_not(stage: Stage) -> None:
    begun, seen = threading.Event(), []

    async def look(envelope: Any) -> Handled:
        seen.append((stage.executed, envelope.offset))
        await asyncio.to_thread(int)
        seen.append((stage.executed, envelope.offset))
        return DONE

    stage.start(waiting(stage, begun))
    assert begun.wait(60)
    stage.start(look)
    stage.wait_for()
    assert seen == [([2], 2)] * 2
    assert stage.executed == []


def test_so_is_each_step_of_a_task_that_the_call_makes(stage: Stage) -> None:
    seen = []

    async def look() -> None:
        await asyncio.to_thread(int)
        seen.append(stage.executed)

    async def gather(_: Any) -> Handled:
        await asyncio.gather(look(), look())
        return DONE

    stage.start(done, gather)
    stage.wait_for(2)
    assert seen == [[2], [2]]


def test_a_thread_is_in_flight_while_it_executes_a_function_of_the_call(stage: Stage) -> None:
    seen = []

    async def look(envelope: Any) -> Handled:
        await asyncio.to_thread(lambda: seen.append([each.find() is not None for each in stage.memory.threads[:3]]))
        return await stage.threads.run(lambda: seen.append(stage.executed) or DONE, envelope)

    assert stage.outcome(look) is DONE
    assert sum(seen[0]) == 1
    assert seen[1] == [1]
    wait_until(lambda: stage.executed == [], "the thread is free")


# Threads


def test_there_are_at_most_as_many_threads_as_configured(stage: Stage) -> None:
    release, begun = threading.Event(), threading.Semaphore(0)

    def hang() -> Handled:
        begun.release()
        release.wait()
        return DONE

    async def hang_in_a_thread(envelope: Any) -> Handled:
        return await stage.threads.run(hang, envelope)

    stage.start(*[hang_in_a_thread] * 5)
    for _ in range(3):
        assert begun.acquire(timeout=60)
    assert stage.executed == [1, 2, 3]
    release.set()
    assert [each.outcome for each in stage.wait_for(5)] == [DONE] * 5


def test_a_free_thread_is_used_again(stage: Stage) -> None:
    async def name(envelope: Any) -> Handled:
        return await stage.threads.run(lambda: Handled(unmatched=threading.get_ident()), envelope)

    first = stage.outcome(name)
    wait_until(lambda: stage.threads._free._value == 1, "the thread is free")
    stage.found.clear()
    assert stage.outcome(name) == first


def test_without_another_thread_a_call_is_tried_again(stage: Stage, monkeypatch: Any) -> None:
    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    async def work(envelope: Any) -> Handled:
        return await stage.threads.run(lambda: DONE, envelope)

    with monkeypatch.context() as patch:
        patch.setattr(stage.threads, "_add_thread", refuse)
        assert isinstance(stage.outcome(work), TransientError)
    stage.found.clear()
    assert stage.outcome(work) is DONE


@pytest.mark.parametrize("error", [TransientError("away"), SystemExit(3), asyncio.CancelledError(), KeyError()], ids=repr)
def test_what_a_function_in_a_thread_raises_is_the_outcome(stage: Stage, error: BaseException) -> None:
    def fail() -> Handled:
        raise error

    async def fail_in_a_thread(envelope: Any) -> Handled:
        return await stage.threads.run(fail, envelope)

    assert type(stage.outcome(fail_in_a_thread)) is type(error)


def test_nor_does_the_end_of_an_iteration_leave_a_call_without_an_end(stage: Stage) -> None:
    async def fail_in_a_thread(envelope: Any) -> Handled:
        return await stage.threads.run(lambda: next(iter(())), envelope)

    assert isinstance(stage.outcome(fail_in_a_thread), RuntimeError)


def test_a_cancelled_call_in_a_thread_ends_when_the_thread_really_has_and_one_that_has_not_begun_at_once(stage: Stage) -> None:
    release, begun, calls = threading.Event(), threading.Semaphore(0), []

    def hang() -> Handled:
        calls.append(1)
        begun.release()
        release.wait()
        return DONE

    async def hang_in_a_thread(envelope: Any) -> Handled:
        return await stage.threads.run(hang, envelope)

    started = stage.start(*[hang_in_a_thread] * 4)
    for _ in range(3):
        assert begun.acquire(timeout=60)
    for each in started:
        stage.runner.cancel(each)
    (ended,) = stage.wait_for()
    assert ended.call is started[3]
    assert stage.memory.overdue.find().origin.offset == 1
    release.set()
    assert [type(each.outcome) for each in stage.wait_for(4)] == [asyncio.CancelledError] * 4
    assert len(calls) == 3


@pytest.mark.parametrize("is_in_thread", [False, True], ids=["coroutine", "thread"])
def test_nothing_of_a_call_stays_when_its_outcome_was_taken(stage: Stage, is_in_thread: bool) -> None:
    """The collector of garbage runs rarely in a worker: an error that refers to itself would keep the data of its call."""

    def fail() -> Handled:
        raise TransientError("away")

    async def fail_with(envelope: Any) -> Handled:
        return await stage.threads.run(fail, envelope) if is_in_thread else fail()

    def outcome() -> Any:
        stage.start(fail_with)
        (ended,) = stage.wait_for()
        stage.found.clear()
        return ref(ended.outcome)

    gc.disable()
    try:
        error = outcome()
        wait_until(lambda: error() is None, "the error is gone", 60)
    finally:
        gc.enable()


# Suspects


def condemn(stage: Stage, call: Call, times: int) -> None:
    stage.memory.step.take(call.envelope, CallKind.HANDLING)
    for _ in range(times):
        stage.suspects.judge(stage.memory.find_executed(), "was killed by SIGSEGV")
    stage.memory.clear()
    stage.in_flight.look()


def test_a_suspect_is_called_alone_and_forgotten_when_its_output_is_published(stage: Stage) -> None:
    call = stage.call(done)
    condemn(stage, call, 1)
    assert stage.runner.must_be_alone(call)
    assert not stage.runner.must_be_alone(stage.call(done))
    stage.runner.start(call)
    stage.wait_for()
    stage.in_flight.forget_those_that(lambda _: True)
    assert len(stage.suspects.find_all()) == 1, "its answer is taken by a turn of the next cycle"
    stage.in_flight.look()
    stage.in_flight.forget_those_that(lambda _: False)
    assert len(stage.suspects.find_all()) == 1
    stage.in_flight.forget_those_that(lambda _: True)
    assert stage.suspects.find_all() == {}


@pytest.mark.parametrize("error", [TransientError("away"), asyncio.CancelledError()], ids=repr)
def test_a_suspect_that_is_called_again_later_is_not_forgotten(stage: Stage, error: BaseException) -> None:
    async def fail(_: Any) -> Handled:
        raise error

    call = stage.call(fail)
    condemn(stage, call, 1)
    stage.runner.start(call)
    stage.wait_for()
    stage.in_flight.look()
    stage.in_flight.forget_those_that(lambda _: True)
    assert len(stage.suspects.find_all()) == 1


def test_what_ended_three_workers_is_not_called(stage: Stage) -> None:
    call = stage.call(None)
    condemn(stage, call, EXITS_OF_ONE)
    stage.runner.start(call)
    (ended,) = stage.runner.ended()
    assert isinstance(ended.outcome, EndedItsWorker)
    assert stage.wakes == 1
    assert not stage.runner._thread.is_alive(), "no thread begins for it"
    stage.in_flight.look()
    stage.in_flight.forget_those_that(lambda _: True)
    assert stage.suspects.find_all() == {}


# The log


@pytest.mark.parametrize(
    ("error", "attempts", "text"),
    [
        (
            TransientError("no answer within 3 s"),
            0,
            "attempt 1 of 3, another attempt follows: TransientError: no answer within 3 s",
        ),
        (TransientError("no answer within 3 s"), 2, "attempt 3 of 3, no further attempt: TransientError: no answer within 3 s"),
        (PermanentError("never"), 0, "attempt 1 of 3, no further attempt: PermanentError: never"),
        (DependencyUnavailable("sanctions-api"), 0, None),
        (None, 0, None),
    ],
)
def test_a_call_that_failed_is_logged_with_its_attempt_once_for_each_kind(
    caplog: Any, error: Exception | None, attempts: int, text: str | None
) -> None:
    log = HandlingLog(LogRateLimit(), SystemClock(), 3_000, 3)
    for _ in range(2):
        log.note_call(Call(Envelopes()(1), None, Marks(), 17, attempts), error, 3_004)
    written = [] if text is None else [f"handling IPF_PROCESSING_DATA-0@1 of unit uow-1 failed after 3.0 s, {text}"]
    assert [each.getMessage() for each in caplog.records] == written
