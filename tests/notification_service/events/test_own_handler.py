"""A user's own handler of any events: an error costs its event, and the notifications have ids and headers of the contract."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from harness.calling import users_calls
from harness.waiting import async_yield

from notification_service.events.own_format import make_event
from notification_service.events.own_handler import EventMessage, ForeignEventHandler
from resequencer.errors import DependencyUnavailable, PermanentError, TooLarge, TransientError
from resequencer.handler import UNMARKED, Handled, Marks
from resequencer.notification import notification_id
from resequencer.record import Origin, Partition, Record

TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
EVENT = make_event(
    Record(Origin(Partition("T", 0), 7), b"v", b"k", (("traceparent", TRACE), ("notification-id", b"upstream"))),
    "order-1",
    sequence=3,
)
LIMIT = 5_000
Answer = Callable[[], Iterable[Any]]


class Says:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def handle(self, *given: Any) -> Iterable[Any]:
        assert given == (EVENT, "data", self.marks, 5)
        return self._answer()

    marks: Marks = UNMARKED


def handled(answer: Answer, marks: Marks = UNMARKED) -> Handled:
    says = Says(answer)
    says.marks = marks
    return ForeignEventHandler(says, "own:Own", LIMIT).handle(EVENT, "data", marks, 5)


def test_a_message_becomes_a_notification_with_the_headers_of_the_user_and_ours_behind() -> None:
    answer = [EventMessage(1, b"two", b"other", (("kind", b"x"), ("kind", b"y"))), EventMessage(0, b"one")]
    second, first = handled(lambda: answer, Marks("sequence:2", late=True)).notifications
    assert [each.notification_id for each in (first, second)] == [notification_id("order-1", "events#3", at) for at in (0, 1)]
    assert (first.unit, first.key, first.value, first.status, str(first.origin)) == (
        "order-1",
        b"order-1",
        b"one",
        "published",
        "T-0@7",
    )
    ours = (("envelope-id", b"events#3"), ("source-position", b"T-0@7"))
    marks = (("incomplete", b"sequence:2"), ("late", b"true"), ("traceparent", TRACE))
    assert first.headers == (("notification-id", first.notification_id.encode()), *ours, *marks)
    identified = ("notification-id", second.notification_id.encode())
    assert second.headers == (("kind", b"x"), ("kind", b"y"), identified, *ours, ("unit-of-work", b"order-1"), *marks)
    assert (second.key, second.size > len(b"two") + len(b"otherkindxkindy")) == (b"other", True)


def test_key_and_value_may_be_null() -> None:
    (made,) = handled(lambda: [EventMessage(0, None, None)]).notifications
    assert (made.key, made.value, dict(made.headers)["unit-of-work"]) == (None, None, b"order-1")


def test_an_event_without_a_message_counts_as_suppressed() -> None:
    assert handled(list) == Handled((), suppressed=1)


@pytest.mark.parametrize(
    "error", [TransientError("later"), DependencyUnavailable("desk"), PermanentError("no"), KeyboardInterrupt()]
)
def test_what_means_something_to_the_service_passes(error: BaseException) -> None:
    def answer() -> Iterable[Any]:
        yield EventMessage(0, b"")
        raise error

    with pytest.raises(type(error)) as raised:
        handled(answer)
    assert raised.value is error


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), asyncio.CancelledError(), TooLarge("no")])
def test_anything_else_that_it_raises_costs_the_event_and_names_it(error: BaseException) -> None:
    def answer() -> Iterable[Any]:
        raise error

    with pytest.raises(PermanentError, match=rf"^handler own:Own raised {type(error).__name__}"):
        handled(answer)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (EventMessage(-1, b""), "gave the index -1"),
        (EventMessage(True, b""), "gave the index True"),
        (EventMessage(2**31, b""), "gave the index 2147483648"),
        (EventMessage(0, "text"), "gave an object of type str as value; give bytes or None"),  # type: ignore[arg-type]
        (EventMessage(0, b"", "key"), "gave an object of type str as key; give bytes or None"),  # type: ignore[arg-type]
        (EventMessage(0, b"", headers=((5, b""),)), "gave a header with the name 5"),  # type: ignore[arg-type]
        (EventMessage(0, b"", headers=(("", b""),)), "gave a header with the name ''"),
        (EventMessage(0, b"", headers=(("a", "b"),)), "raised TypeError"),  # type: ignore[arg-type]
        (EventMessage(0, b"", headers=(("\ud83d", b"b"),)), "raised UnicodeEncodeError"),
        (EventMessage(0, b"", headers=None), "raised TypeError"),  # type: ignore[arg-type]
    ],
)
def test_an_answer_that_cannot_be_used_costs_the_event_and_says_why(message: Any, expected: str) -> None:
    with pytest.raises(PermanentError) as raised:
        handled(lambda: [message])
    assert str(raised.value).startswith(f"handler own:Own {expected}")


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (None, "returned None"),
        (5, "returned an object of type int"),
        ([None], "yielded None"),
        (["text"], "yielded an object of type str"),
    ],
)
def test_an_answer_without_messages_costs_the_event_and_says_what_it_must_yield(answer: Any, what: str) -> None:
    with pytest.raises(PermanentError, match=f"^handle of handler own:Own must yield EventMessage; it {what}$"):
        handled(lambda: answer)


def test_an_index_is_given_once() -> None:
    with pytest.raises(PermanentError, match="each once"):
        handled(lambda: [EventMessage(0, b"a"), EventMessage(0, b"b")])


@pytest.mark.parametrize(
    "name",
    [
        *("notification-id", "envelope-id", "source-position", "unit-of-work", "incomplete", "released-by", "late"),
        *("possible-duplicate", "traceparent", "tracestate", "requeued-from", "resequencer-late", "dead-letter-reason"),
        "delivery-id",
    ],
)
def test_a_header_of_the_service_is_refused(name: str) -> None:
    with pytest.raises(PermanentError, match=f"gave the header '{name}', which is the service's; choose another name"):
        handled(lambda: [EventMessage(0, b"", headers=((name, b"x"),))])


def test_more_bytes_than_an_event_may_lead_to_are_too_large() -> None:
    for large in (
        EventMessage(0, b"x" * LIMIT),
        EventMessage(0, b"", b"x" * LIMIT),
        EventMessage(0, b"", headers=(("a", b"x" * LIMIT),)),
    ):
        with pytest.raises(TooLarge, match="raise max-record-bytes"):
            handled(lambda large=large: [large])  # type: ignore[misc]


def test_a_class_without_the_method_is_refused() -> None:
    with pytest.raises(TypeError, match="it has no method handle"):
        ForeignEventHandler(object(), "own:Own", LIMIT)  # type: ignore[arg-type]


class Asks:
    """The same, with `await`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def handle(self, *given: Any) -> Iterable[Any]:
        assert given == (EVENT, "data", UNMARKED, 5)
        await async_yield()
        return self._answer()


class Yields(Asks):
    async def handle(self, *given: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        for each in await super().handle(*given):
            yield each


def called(users: type[Asks | Says], answer: Answer, threads: int = 0) -> Handled:
    """Return what comes of a call of a handler that waits."""
    calls = users_calls(threads)
    call = ForeignEventHandler(users(answer), "own:Own", LIMIT, calls.find_way).call
    assert call is not None
    try:
        return asyncio.run(call(EVENT, "data", UNMARKED, 5))
    finally:
        calls.threads.shutdown()


WAYS = [(Asks, 0), (Yields, 0), (Says, 1)]


@pytest.mark.parametrize(("users", "threads"), WAYS)
def test_a_handler_that_waits_makes_the_same(users: type[Asks | Says], threads: int) -> None:
    answer = [EventMessage(1, b"two", b"other", (("kind", b"x"),)), EventMessage(0, b"one")]
    assert called(users, lambda: answer, threads) == handled(lambda: answer)
    assert called(users, list, threads) == Handled((), suppressed=1)


@pytest.mark.parametrize(("users", "threads"), WAYS)
def test_a_failure_of_a_handler_that_waits_costs_its_event_as_any_other(users: type[Asks | Says], threads: int) -> None:
    def fail() -> Iterable[Any]:
        raise ValueError("odd")

    with pytest.raises(PermanentError, match=r"^handler own:Own raised ValueError: odd"):
        called(users, fail, threads)
    with pytest.raises(PermanentError, match=r"^handler own:Own gave the index -1"):
        called(users, lambda: [EventMessage(-1, b"")], threads)
    with pytest.raises(TooLarge, match="raise max-record-bytes"):
        called(users, lambda: [EventMessage(0, b"x" * LIMIT)], threads)


def test_a_handler_that_is_called_within_the_turn_has_no_other_way() -> None:
    assert ForeignEventHandler(Says(list), "own:Own", LIMIT, users_calls().find_way).call is None


def test_a_synchronous_handler_that_returns_a_coroutine_is_refused_with_the_remedy() -> None:
    asks = Asks(list)

    class Passes:
        def handle(self, *given: Any) -> Any:
            return asks.handle(*given)

    expected = "^handle of handler own:Own returned an object of type coroutine, .*: define it with async def"
    with pytest.raises(PermanentError, match=expected):
        ForeignEventHandler(Passes(), "own:Own", LIMIT).handle(EVENT, "data", UNMARKED, 5)
