"""A user's own format: whatever it raises or returns costs its record a dead letter that says what it was, and no more."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from notification_service.events.format import DecodingSettings
from notification_service.events.own_format import ForeignFormat, make_event
from notification_service.events.settings import EventsSettings, Mapping, find_decoder
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import ConfigurationError, EndedItsWorker, PermanentError
from resequencer.event import Event, Refusal
from resequencer.in_flight import CallKind
from resequencer.notification import short_digest
from resequencer.record import Origin, Partition, Record

RECORD = Record(Origin(Partition("events", 2), 41), b"order-17;3;paid", b"k", (("trace", b"1"),))
Decode = Callable[[Record], Any]


class Says:
    """A format that answers with the function's result."""

    def __init__(self, decode: Decode) -> None:
        self.decode = decode


class Order(Event, frozen=True, gc=False):
    total: int = 0


def decoded(decode: Decode, record: Record = RECORD, **settings: Any) -> Event | Refusal:
    return ForeignFormat(Says(decode), "own:Format", DecodingSettings(**{"needs_sequence": True, **settings})).decode(record)


def refused(decode: Decode, **settings: Any) -> tuple[DeadLetterReason, str]:
    refusal = decoded(decode, **settings)
    assert isinstance(refusal, Refusal), refusal
    return refusal.reason, refusal.error


def order(record: Record) -> Event:
    unit, sequence, kind = record.value.decode().split(";")
    return make_event(record, unit, sequence=int(sequence), parts=(kind,), kind=Order, total=5, weight=40)


def changed(**fields: Any) -> Decode:
    return lambda record: msgspec.structs.replace(order(record), **fields)


def raising(error: BaseException) -> Decode:
    def decode(_: Record) -> Any:
        raise error

    return decode


def test_the_event_is_what_the_format_makes_of_the_record() -> None:
    event = decoded(order)
    assert isinstance(event, Order)
    assert (event.unit, event.flow, event.sequence, event.event_id) == ("order-17", "events", 3, "events#3")
    assert (event.parts, event.total, event.weight, event.record) == (("paid",), 5, 40, RECORD)


def test_the_digest_covers_all_but_headers() -> None:
    event = order(RECORD)
    same = msgspec.structs.replace(RECORD, headers=())
    assert order(same).digest == event.digest
    others = [{"flow": "b"}, {"sequence": 4}, {"parts": ("sent",)}, {"time": 1}, {"previous": "e-0"}]
    made = [make_event(RECORD, "order-17", **{"sequence": 3, "parts": ("paid",), **each}).digest for each in others]  # type: ignore[arg-type]
    keyed, valued = (msgspec.structs.replace(RECORD, **each) for each in ({"key": None}, {"value": b"order-17;3;paid "}))
    digests = {event.digest, order(keyed).digest, *made, make_event(valued, "order-17", sequence=3, parts=("paid",)).digest}
    assert len(digests) == 8


def test_without_an_id_and_a_sequence_the_digest_is_the_id() -> None:
    event = make_event(RECORD, "order-17")
    assert event.event_id == f"events#{event.digest.hex()}"
    event = make_event(RECORD, "order-17", flow="f" * 250)
    assert event.event_id == short_digest(f"{'f' * 250}#{event.digest.hex()}".encode())


@pytest.mark.parametrize("error", [KeyError("order"), SystemExit(3), asyncio.CancelledError(), RecursionError("deep")])
def test_what_it_raises_is_the_error_of_the_dead_letter(error: BaseException) -> None:
    reason, text = refused(raising(error))
    assert reason is DeadLetterReason.UNDECODABLE
    assert text.startswith(f"format own:Format raised {type(error).__name__}")


def test_a_permanent_error_says_by_itself_what_is_wrong() -> None:
    assert refused(raising(PermanentError("no order\nhere"))) == (DeadLetterReason.UNDECODABLE, "no order\\nhere")


def test_a_refusal_keeps_its_reason() -> None:
    reason, error = DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION, "schema 9; send 2"
    assert refused(lambda _: Refusal(reason, error)) == (reason, error)
    assert refused(lambda _: Refusal("odd", error))[1].startswith("format own:Format raised ValueError")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("decode", "reason", "expected"),
    [
        (lambda _: None, "undecodable", "returned NoneType; return an event of make_event, or a Refusal"),
        (lambda record: order(msgspec.structs.replace(record)), "undecodable", "returned the event of another record"),
        (changed(unit=""), "no-unit-of-work", "found no unit"),
        (changed(unit=None), "no-unit-of-work", "found no unit"),
        (changed(unit=5), "undecodable", "gave unit as int; give str"),
        (changed(unit="u" * 257), "invalid-id", "unit has 257 characters"),
        (changed(unit="a\nb"), "invalid-id", "unit contains a control character"),
        (changed(unit="\ud83d"), "invalid-id", "unit has half a surrogate pair"),
        (changed(flow=""), "invalid-id", "flow is empty"),
        (changed(event_id="e\x00"), "invalid-id", "event_id contains a control character"),
        (changed(previous="e\x00"), "invalid-id", "previous contains a control character"),
        (changed(entity=b"e"), "undecodable", "gave entity as bytes; give str or NoneType"),
        (changed(parts=["paid"]), "undecodable", "gave parts as list; give tuple"),
        (changed(parts=("paid", None)), "undecodable", "gave a NoneType among parts"),
        (changed(parts=("",)), "invalid-id", "parts is empty"),
        (changed(digest=b"short"), "undecodable", "gave hashes that have not 8 bytes"),
        (changed(weight=-1), "undecodable", "a negative weight"),
        (changed(sequence=None), "no-sequence", "sequence is missing"),
        (changed(sequence=0), "invalid-sequence", "sequence is '0'"),
        (changed(sequence=2**53), "invalid-sequence", "sequence is '9007199254740992'"),
        (changed(sequence=10**5_000), "undecodable", "gave a sequence of 16610 bits"),
        (changed(sequence=True), "undecodable", "gave sequence as bool"),
        (changed(sequence=3.0), "undecodable", "gave sequence as float"),
        (changed(time=10**5_000), "undecodable", "gave a time of 16610 bits"),
        (changed(time=253_402_300_800_000), "undecodable", "gave a time outside the years 1 to 9999"),
    ],
)
def test_an_answer_that_cannot_be_used_is_refused_and_the_error_says_why(decode: Decode, reason: str, expected: str) -> None:
    found, error = refused(decode)
    assert found.value == reason
    assert expected in error


def test_what_the_strategy_needs_must_be_there() -> None:
    assert refused(order, needs_time=True)[0] is DeadLetterReason.INVALID_TIME
    assert isinstance(decoded(changed(sequence=0), first_sequence=0), Order)
    free = decoded(changed(sequence=0), needs_sequence=False)
    assert isinstance(free, Order)
    assert free.sequence is None


def test_a_record_that_is_too_large_is_not_shown_to_it() -> None:
    reason, error = refused(raising(KeyboardInterrupt()), max_value_bytes=5)
    assert reason is DeadLetterReason.TOO_LARGE
    assert "the value has 15 bytes" in error


def test_a_record_without_a_value_is_shown_to_it() -> None:
    deleted = msgspec.structs.replace(RECORD, value=None)
    event = decoded(lambda record: make_event(record, "order-17", sequence=4), deleted)
    assert isinstance(event, Event)
    assert event.digest != make_event(msgspec.structs.replace(RECORD, value=b""), "order-17", sequence=4).digest
    assert refused(lambda _: order(deleted))[1].startswith("format own:Format raised AttributeError")


def test_an_interrupt_passes() -> None:
    with pytest.raises(KeyboardInterrupt):
        decoded(raising(KeyboardInterrupt()))


class Noting:
    """Notes what is in flight; the worker must not repeat a call that ended others."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[Event, CallKind] | None] = []
        self._error = error

    def take(self, envelope: Event, kind: CallKind) -> None:
        self.calls.append((envelope, kind))
        if self._error is not None:
            raise self._error

    def postpone(self, envelope: Event) -> None:
        pass

    def clear(self) -> None:
        self.calls.append(None)


def test_the_record_is_in_flight_while_it_is_read() -> None:
    noting = Noting()
    ForeignFormat(Says(raising(ValueError())), "own:Format", DecodingSettings(needs_sequence=False), noting).decode(RECORD)
    (taken, kind), ended = noting.calls  # type: ignore[misc]
    assert ended is None
    assert (taken.record, taken.unit, kind) == (RECORD, "", CallKind.READING)
    assert len(taken.id_hash) == len(taken.digest) == 8


def test_a_record_that_ended_workers_is_not_read_again() -> None:
    noting = Noting(EndedItsWorker("reading it ended 3 workers"))
    reading = ForeignFormat(Says(order), "own:Format", DecodingSettings(needs_sequence=False), noting)
    assert reading.decode(RECORD) == Refusal(DeadLetterReason.ENDED_ITS_WORKER, "reading it ended 3 workers")


@pytest.mark.parametrize(("name", "expected"), [("json:JSONDecodeError", "TypeError"), ("nowhere:Format", "cannot be imported")])
def test_a_class_that_cannot_be_used_is_refused_with_the_key(name: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected) as raised:
        find_decoder(EventsSettings(name, Mapping()), DecodingSettings(needs_sequence=True))
    assert str(raised.value).startswith(f"ipf.processing-data.ingress.events.format: '{name}' cannot be ")


def test_a_class_without_the_method_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"it has no method decode; see docs/extending\.md, 'Add a format'"):
        find_decoder(EventsSettings("builtins:id", Mapping()), DecodingSettings(needs_sequence=True))
