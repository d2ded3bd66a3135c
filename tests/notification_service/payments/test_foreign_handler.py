"""A user's own handler: an error costs only its envelope, and its notifications have the ids and headers of the contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from harness.calling import users_calls
from harness.driving import wire
from harness.waiting import async_yield

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.enrichment import SettingsAlone
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.foreign_handler import ForeignHandler
from notification_service.payments.notification_settings import NotificationSettings
from notification_service.payments.payment_data import PaymentData
from notification_service.payments.port import Message
from notification_service.payments.settings import HandlerSettings, make_handler
from resequencer.errors import ConfigurationError, DependencyUnavailable, PermanentError, TooLarge, TransientError
from resequencer.handler import Handled, Marks, find_call
from resequencer.notification import notification_id
from resequencer.record import Origin, Partition, Record
from resequencer.users_code import within_the_turn

ALONE = SettingsAlone(NotificationSettings(()))
ROOM = 1_000


class Versioned(SettingsAlone):
    def __init__(self, version: str) -> None:
        super().__init__(NotificationSettings(()))
        self.version = version

    def find(self, lookup: str, *key: str) -> tuple[str | None, ...] | None:
        return (lookup, *key, self.version)


class Says:
    """Answers with the function's result for the lookups that it gets."""

    def __init__(self, answer: Callable[[Any], Iterable[Any]]) -> None:
        self._answer = answer

    def handle(self, *given: Any) -> Iterable[Any]:
        return self._answer(given[-1])


def envelope(*events: dict[str, str]) -> DataEnvelope:
    value = wire("uow-1", "Flow", 1, "e-1", processObjects=[{"uniqueId": "e-1", "object": each} for each in events])
    decoded = EnvelopeDecoder(DecodingSettings(needs_sequence=True)).decode(Record(Origin(Partition("T", 0), 7), value))
    assert isinstance(decoded, DataEnvelope)
    return decoded


TWO = ({"eventName": "One", "processFlowName": "Flow"}, {})


def handled(answer: Callable[[Any], Iterable[Any]], marks: Marks = Marks()) -> Handled:  # noqa: B008 - frozen.
    return ForeignHandler(Says(answer), "own:Own", ALONE, ROOM).handle(envelope(*TWO), PaymentData(), marks, 0)


def raising(error: BaseException) -> Callable[[Any], Iterable[Any]]:
    def answer(_: Any) -> Iterable[Any]:
        yield Message(0, "ACSC", b"")
        raise error

    return answer


def test_a_message_becomes_a_notification_with_the_id_of_its_process_object_and_the_headers_of_the_contract():
    made = handled(lambda _: [Message(1, "RJCT", b"two"), Message(0, "ACSC", b"one")], Marks("sequence:3", late=True))
    second, first = made.notifications
    assert [each.notification_id for each in (first, second)] == [notification_id("uow-1", "e-1", at) for at in (0, 1)]
    assert (first.unit, first.status, first.value, str(first.origin)) == ("uow-1", "ACSC", b"one", "T-0@7")
    assert first.headers == (
        ("notification-id", first.notification_id.encode()),
        ("envelope-id", b"e-1"),
        ("source-position", b"T-0@7"),
        ("event-name", b"One"),
        ("process-flow-name", b"Flow"),
        ("transaction-status", b"ACSC"),
        ("incomplete", b"sequence:3"),
        ("late", b"true"),
    )
    assert dict(second.headers)["event-name"] == b""
    assert (made.unmatched, made.suppressed) == (0, 0)


def test_process_objects_of_which_it_says_nothing_are_counted():
    assert handled(lambda _: []) == Handled((), suppressed=2)


def test_it_is_handed_the_lookups_of_the_version_that_counts_and_its_notifications_name_that():
    says = Says(lambda lookups: [Message(0, "ACSC", "|".join(lookups.find("desks", "k")).encode())])
    first = ForeignHandler(says, "own:Own", Versioned("V1"), ROOM)
    made = [each.handle(envelope(*TWO), PaymentData(), Marks(), 0) for each in (first, first.with_lookups(Versioned("V2")))]
    assert [each.notifications[0].value for each in made] == [b"desks|k|V1", b"desks|k|V2"]
    assert [dict(each.notifications[0].headers)["lookups-version"] for each in made] == [b"V1", b"V2"]


@pytest.mark.parametrize(
    "error", [TransientError("later"), DependencyUnavailable("desk"), PermanentError("never"), KeyboardInterrupt()]
)
def test_what_means_something_to_the_service_goes_through(error: BaseException):
    with pytest.raises(type(error)) as raised:
        handled(raising(error))
    assert raised.value is error


@pytest.mark.parametrize(
    "error", [ValueError("odd"), SystemExit(3), asyncio.CancelledError(), GeneratorExit(), TooLarge("no"), RecursionError()]
)
def test_anything_else_that_it_raises_costs_the_envelope_and_names_it(error: BaseException):
    with pytest.raises(PermanentError, match=rf"^handler own:Own raised {type(error).__name__}") as raised:
        handled(raising(error))
    assert type(raised.value) is PermanentError


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, "raised TypeError"),
        (["text"], "answered a str among its messages; answer with Message"),
        ([Message(2, "ACSC", b"")], "made a message of process object 2, the envelope has 2, counted from 0"),
        ([Message(-1, "ACSC", b"")], "made a message of process object -1"),
        ([Message(True, "ACSC", b"")], "made a message of process object True"),
        ([Message(1, "ACSC", b""), Message(1, "ACSC", b"")], "made two messages of process object 1"),
        ([Message(0, "DONE", b"")], "gave the status 'DONE', which is no ISO code; use one of ACCC, "),
        ([Message(0, [], b"")], "gave the status [], which is no ISO code"),
        ([Message(0, "ACSC", "text")], "gave a str as value instead of bytes"),
    ],
)
def test_an_answer_that_cannot_be_used_costs_the_envelope_and_says_why(answer: Any, expected: str):
    with pytest.raises(PermanentError) as raised:
        handled(lambda _: answer)
    assert str(raised.value).startswith(f"handler own:Own {expected}")


def test_more_bytes_than_an_envelope_may_lead_to_are_too_large():
    assert len(handled(lambda _: [Message(0, "ACSC", b"x" * 500), Message(1, "ACSC", b"x" * 500)]).notifications) == 2
    with pytest.raises(TooLarge, match="raise max-record-bytes"):
        handled(lambda _: [Message(0, "ACSC", b"x" * 500), Message(1, "ACSC", b"x" * 501)])


def test_a_class_that_fails_when_it_is_made_is_refused_with_the_key():
    with pytest.raises(ConfigurationError, match=r"^payment-status-notification.handler: 'json:JSONDecodeError' cannot be used"):
        make_handler(HandlerSettings(handler="json:JSONDecodeError"), NotificationSettings(()))


class Asks(Says):
    """The same, with `await`."""

    async def handle(self, *given: Any) -> Iterable[Any]:  # type: ignore[override]
        await async_yield()
        return super().handle(*given)


class Yields(Says):
    async def handle(self, *given: Any) -> AsyncIterator[Any]:  # type: ignore[override]
        await async_yield()
        for each in super().handle(*given):
            yield each


WAYS = [(Asks, 0), (Yields, 0), (Says, 1)]


@pytest.mark.parametrize(("users", "threads"), WAYS)
def test_a_handler_that_waits_makes_the_same_with_the_lookups_of_its_version(users: type[Says], threads: int):
    """It makes facts, too."""

    def answer(lookups: Any) -> Iterable[Message]:
        yield Message(1, "ACSC", "|".join(lookups.find("desks", "k")).encode())

    calls = users_calls(threads)
    given = envelope(*TWO), PaymentData(), Marks(late=True), 0
    makers = [
        ForeignHandler(made, "own:Own", Versioned("V1"), ROOM, makes_facts=True, find_way=way)
        for made, way in ((users(answer), calls.find_way), (Says(answer), within_the_turn))
    ]
    for waiting, plain in (makers, [each.with_lookups(Versioned("V2")) for each in makers]):
        call = find_call(waiting)
        assert call is not None
        assert asyncio.run(call(*given)) == plain.handle(*given)
        assert find_call(plain) is None
    calls.threads.shutdown()


@pytest.mark.parametrize(("users", "threads"), WAYS)
@pytest.mark.parametrize(
    ("error", "text"), [(SystemExit(3), "^handler own:Own raised SystemExit"), (PermanentError("no"), "^no$")], ids=str
)
def test_a_failure_of_a_handler_that_waits_costs_its_envelope(users: type[Says], threads: int, error: Any, text: str):
    calls = users_calls(threads)
    call = ForeignHandler(users(raising(error)), "own:Own", ALONE, ROOM, find_way=calls.find_way).call
    assert call is not None
    with pytest.raises(PermanentError, match=text):
        asyncio.run(call(envelope(*TWO), PaymentData(), Marks(), 0))
    calls.threads.shutdown()


def test_a_synchronous_handler_that_returns_a_coroutine_is_refused_with_the_remedy():
    asks = Asks(lambda _: [])
    with pytest.raises(PermanentError, match=r"^handle of handler own:Own returned an object of type coroutine, .* async def"):
        handled(lambda lookups: asks.handle(lookups))
