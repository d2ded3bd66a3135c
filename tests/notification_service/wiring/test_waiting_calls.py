"""How users' code is called beside the turns: what it raises costs its event, and a call ends when its code has ended."""

import asyncio
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from threading import Event as Signal
from threading import current_thread, local
from typing import Any
from weakref import ref

import pytest
from harness.waiting import DEADLINE_SECONDS, async_wait_until, async_yield, wait_until

from notification_service.events.own_format import make_event
from notification_service.wiring.waiting_calls import HandlingThreads, UsersCalls, await_it
from resequencer.errors import DependencyUnavailable, EndedItsWorker, PermanentError, TooLarge, TransientError
from resequencer.event import Event
from resequencer.in_flight import CallKind, Untracked
from resequencer.record import Origin, Partition, Record
from resequencer.users_code import Way

WHO = "handler own:Own"
EVENT = make_event(Record(Origin(Partition("T", 0), 7), b"v", b"k"), "order-1", sequence=3)


class Slot(Untracked):
    """Notes what it has."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.held: Event | None = None
        self._refusal = refusal

    def take(self, envelope: Event, kind: CallKind) -> None:
        assert kind is CallKind.HANDLING
        if self._refusal is not None:
            raise self._refusal
        self.held = envelope

    def clear(self) -> None:
        self.held = None


@pytest.fixture
def with_threads() -> Iterator[Callable[..., UsersCalls]]:
    """Make what has a thread for each slot; all threads end with the test."""
    made: list[UsersCalls] = []

    def with_threads(*slots: Slot) -> UsersCalls:
        slots = slots or (Slot(),)
        made.append(UsersCalls(HandlingThreads(slots), len(slots), 64))
        return made[-1]

    yield with_threads
    for each in made:
        each.threads.shutdown()
        for thread in each.threads._threads:
            if thread.ident is not None:
                thread.join(DEADLINE_SECONDS)
                assert not thread.is_alive()


def outcome_of(way: Way, call: Callable[[], Any], finish: Callable[[Any], Any] = list) -> Any:
    """Return what comes of a call in a loop of its own: what is returned, or raised."""
    return asyncio.run(ended(way(WHO, EVENT, call, finish)))


async def ended(call: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await call
    except (PermanentError, TransientError) as error:
        return error


def returning(answer: Any) -> Callable[[], Any]:
    async def answers() -> Any:
        await async_yield()
        return answer

    return answers


async def three() -> AsyncIterator[int]:
    for each in (1, 2, 3):
        await async_yield()
        yield each


def raising(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


def raising_later(error: BaseException) -> Callable[[], Any]:
    async def fail() -> Any:
        await async_yield()
        raise error

    return fail


@pytest.mark.parametrize(("call", "made"), [(returning((1, 2)), [1, 2]), (three, [1, 2, 3]), (returning(three()), [1, 2, 3])])
def test_a_coroutine_is_awaited_and_what_an_async_generator_yields_is_gathered(call: Callable[[], Any], made: list[int]) -> None:
    assert outcome_of(await_it, call) == made


@pytest.mark.parametrize(
    "error",
    [ValueError("odd"), SystemExit(3), KeyboardInterrupt(), CancelledError("mine"), TooLarge("no")],
    ids=lambda error: type(error).__name__,
)
def test_what_it_raises_costs_its_event_and_ends_neither_loop_nor_thread(
    error: BaseException, with_threads: Callable[..., UsersCalls]
) -> None:
    in_thread = with_threads()._call_in_thread
    for outcome in (
        outcome_of(await_it, raising_later(error)),
        outcome_of(await_it, raising(error)),
        outcome_of(in_thread, raising(error)),
    ):
        assert type(outcome) is PermanentError
        assert str(outcome).startswith(f"{WHO} raised {type(error).__name__}")
    assert outcome_of(in_thread, tuple) == []


@pytest.mark.parametrize("error", [TransientError("later"), DependencyUnavailable("desk"), PermanentError("never")])
def test_what_means_something_to_the_service_passes(error: Exception, with_threads: Callable[..., UsersCalls]) -> None:
    assert outcome_of(await_it, raising_later(error)) is error
    assert outcome_of(with_threads()._call_in_thread, raising(error)) is error


def test_an_answer_of_which_nothing_can_be_made_costs_its_event(with_threads: Callable[..., UsersCalls]) -> None:
    expected = f"{WHO} raised TypeError: 'int' object is not iterable"
    assert str(outcome_of(await_it, returning(5))) == expected
    assert str(outcome_of(with_threads()._call_in_thread, lambda: 5)) == expected


def test_a_cancelled_coroutine_is_cancelled_at_its_await_and_says_so() -> None:
    seen: list[str] = []

    async def waiting() -> None:
        try:
            await asyncio.Event().wait()
        except CancelledError:
            seen.append("cancelled")
            raise

    async def cancel() -> None:
        task = asyncio.create_task(await_it(WHO, EVENT, waiting, list))
        await async_yield()
        task.cancel()
        with pytest.raises(CancelledError):
            await task

    asyncio.run(cancel())
    assert seen == ["cancelled"]


def test_time_outs_of_the_users_own_are_no_cancellation() -> None:
    async def impatient() -> list[str]:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            return ["too late"]
        raise AssertionError

    assert outcome_of(await_it, impatient) == ["too late"]


def test_as_many_calls_run_side_by_side_as_there_are_threads_each_in_its_own(with_threads: Callable[..., UsersCalls]) -> None:
    slots, go, own, seen = (Slot(), Slot(), Slot()), Signal(), local(), set[str]()
    calls = with_threads(*slots)

    def call() -> list[int]:
        own.count = getattr(own, "count", 0) + 1  # A user's client for each thread lives as long as that.
        seen.add(current_thread().name)
        assert go.wait(DEADLINE_SECONDS)
        return [own.count]

    async def five() -> list[list[int]]:
        made = [asyncio.create_task(calls._call_in_thread(WHO, EVENT, call, list)) for _ in range(5)]
        await async_wait_until(lambda: all(each.held is EVENT for each in slots), "all threads have a call")
        go.set()
        return await asyncio.gather(*made)

    counts = asyncio.run(five())
    assert sorted(counts)[:3] == [[1], [1], [1]]
    assert max(counts) > [1]
    assert [each.held for each in slots] == [None, None, None]


def test_a_cancelled_call_ends_only_when_its_thread_has_ended_it(with_threads: Callable[..., UsersCalls]) -> None:
    slot, go, order = Slot(), Signal(), list[str]()
    calls = with_threads(slot)

    def call() -> list[int]:
        assert go.wait(DEADLINE_SECONDS)
        order.append("the thread")
        return []

    async def cancel() -> None:
        task = asyncio.create_task(calls._call_in_thread(WHO, EVENT, call, list))
        await async_wait_until(lambda: slot.held, "it is being called")
        for _ in range(3):
            task.cancel()
            await async_yield()
            await async_yield()
        assert not task.done()
        go.set()
        with pytest.raises(CancelledError):
            await task
        order.append("the call")

    asyncio.run(cancel())
    assert order == ["the thread", "the call"]


def test_a_cancelled_call_that_no_thread_has_begun_ends_at_once_and_is_not_made(with_threads: Callable[..., UsersCalls]) -> None:
    slot, go, made = Slot(), Signal(), list[str]()
    calls = with_threads(slot)

    async def cancel() -> None:
        first = asyncio.create_task(calls._call_in_thread(WHO, EVENT, lambda: [go.wait(DEADLINE_SECONDS)], list))
        await async_wait_until(lambda: slot.held, "the only thread has a call")
        second = asyncio.create_task(calls._call_in_thread(WHO, EVENT, lambda: made.append("second"), list))
        await async_yield()
        second.cancel()
        with pytest.raises(CancelledError):
            await second
        go.set()
        assert await first == [True]

    asyncio.run(cancel())
    assert made == []


def test_an_event_that_its_slot_refuses_is_not_called_for(with_threads: Callable[..., UsersCalls]) -> None:
    refusal = EndedItsWorker("three times")
    assert outcome_of(with_threads(Slot(refusal))._call_in_thread, raising(AssertionError())) is refusal


def test_a_thread_that_has_nothing_to_do_keeps_nothing_of_its_last_call(with_threads: Callable[..., UsersCalls]) -> None:
    class Answer(list[int]):
        pass

    calls, answer = with_threads(), Answer()
    known = ref(answer)
    assert outcome_of(calls._call_in_thread, lambda given=answer: given, len) == 0
    del answer
    wait_until(lambda: known() is None, "the answer is gone")


def test_a_thread_that_ends_its_call_after_the_loop_was_closed_ends_quietly(with_threads: Callable[..., UsersCalls]) -> None:
    slot, go = Slot(), Signal()
    calls, loop = with_threads(slot), asyncio.new_event_loop()
    task = loop.create_task(calls._call_in_thread(WHO, EVENT, lambda: [go.wait(DEADLINE_SECONDS)], list))
    loop.run_until_complete(async_wait_until(lambda: slot.held, "it is being called"))
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    go.set()
    wait_until(lambda: slot.held is None, "the call has ended")


def test_what_is_async_is_awaited_and_the_rest_has_the_threads_if_there_are_any(with_threads: Callable[..., UsersCalls]) -> None:
    none, some = UsersCalls(HandlingThreads([]), 0, 64), with_threads(Slot(), Slot())
    assert (none.find_way(three), none.find_way(len), none.limit) == (await_it, None, 64)
    assert (some.find_way(three), some.limit) == (await_it, 64)
    assert (some.find_way(len), some.limit) == (some._call_in_thread, 2)
