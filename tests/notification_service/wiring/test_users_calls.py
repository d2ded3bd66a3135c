"""How users' code is called beside the turns: it is awaited, or has threads, and what it raises costs its event."""

import asyncio
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
from harness.calling import users_calls
from harness.waiting import async_yield

from notification_service.events.own_format import make_event
from notification_service.wiring.handlers import UsersCalls, await_it
from resequencer.errors import DependencyUnavailable, PermanentError, TooLarge, TransientError
from resequencer.record import Origin, Partition, Record
from resequencer.users_code import Way

WHO = "handler own:Own"
EVENT = make_event(Record(Origin(Partition("T", 0), 7), b"v", b"k"), "order-1", sequence=3)


@pytest.fixture
def with_threads() -> Iterator[UsersCalls]:
    made = users_calls(2)
    yield made
    made.threads.shutdown()


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
def test_what_it_raises_costs_its_event_and_ends_neither_loop_nor_thread(error: BaseException, with_threads: UsersCalls) -> None:
    in_thread = with_threads._call_in_thread
    for outcome in (
        outcome_of(await_it, raising_later(error)),
        outcome_of(await_it, raising(error)),
        outcome_of(in_thread, raising(error)),
    ):
        assert type(outcome) is PermanentError
        assert str(outcome).startswith(f"{WHO} raised {type(error).__name__}")
    assert outcome_of(in_thread, tuple) == []


@pytest.mark.parametrize("error", [TransientError("later"), DependencyUnavailable("desk"), PermanentError("never")])
def test_what_means_something_to_the_service_passes(error: Exception, with_threads: UsersCalls) -> None:
    assert outcome_of(await_it, raising_later(error)) is error
    assert outcome_of(with_threads._call_in_thread, raising(error)) is error


def test_an_answer_of_which_nothing_can_be_made_costs_its_event(with_threads: UsersCalls) -> None:
    expected = f"{WHO} raised TypeError: 'int' object is not iterable"
    assert str(outcome_of(await_it, returning(5))) == expected
    assert str(outcome_of(with_threads._call_in_thread, lambda: 5)) == expected


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


def test_what_is_async_is_awaited_and_the_rest_has_the_threads_if_there_are_any(with_threads: UsersCalls) -> None:
    none = users_calls()
    assert (none.find_way(three), none.find_way(len), none.limit) == (await_it, None, 64)
    assert (with_threads.find_way(three), with_threads.limit) == (await_it, 64)
    assert (with_threads.find_way(len), with_threads.limit) == (with_threads._call_in_thread, 2)
