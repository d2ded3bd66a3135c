"""Records of any kind by a mapping: typical ones of Debezium, of Spring Cloud Stream and of Confluent's serializers."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import MappedDecoder, Mapping, Place
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Event, Refusal
from resequencer.notification import short_digest
from resequencer.record import Headers, Origin, Partition, Record

ORIGIN = Origin(Partition("events", 2), 41)
ORDER = {"order": {"id": "order-17", "version": 3, "lines": [{"sku": "a"}, {"sku": "b"}]}, "at": "2026-04-05T17:31:00Z"}


def decoded(value: Any, *, key: bytes | None = b"k", headers: Headers = (), needs_sequence: bool = True, **mapping: Any) -> Any:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    decoder = MappedDecoder(DecodingSettings(needs_sequence), Mapping(**mapping))
    return decoder.decode(Record(ORIGIN, raw, key, headers))


def event_in(value: Any, **how: Any) -> Event:
    event = decoded(value, **how)
    assert isinstance(event, Event), event
    return event


def refused(value: Any, **how: Any) -> tuple[DeadLetterReason, str]:
    refusal = decoded(value, **how)
    assert isinstance(refusal, Refusal), refusal
    return refusal.reason, refusal.error


def test_each_field_comes_from_where_the_mapping_says() -> None:
    event = event_in(
        ORDER,
        key=b"created",
        headers=(("event-id", b"e-1"), ("event-id", b"e-2"), ("after", b"e-0")),
        unit="value:order.id",
        sequence="value:order.version",
        flow="value:order.lines.1.sku",
        id="header:event-id",
        type="key",
        time="value:at",
        previous="header:after",
    )
    assert (event.unit, event.sequence, event.flow, event.event_id) == ("order-17", 3, "b", "e-2")
    assert (event.parts, event.time, event.previous) == (("created",), 1_775_410_260_000, "e-0")


def test_a_value_from_which_nothing_is_mapped_is_not_read() -> None:
    """Confluent's serializers write a zero, the number of a schema, and Avro behind it."""
    avro = b"\x00\x00\x00\x00\x2a\x0corder-17\xff"
    event = event_in(avro, key=b"order-17", headers=(("version", b"7"),), sequence="header:version")
    assert (event.unit, event.sequence, event.flow, event.event_id) == ("order-17", 7, "events", "events#7")
    assert event.record.value == avro


@pytest.mark.parametrize(("given", "unit"), [("order-17", "order-17"), (17, "17"), (-4, "-4"), ("Bücher", "Bücher")])
def test_an_id_may_be_a_text_or_a_whole_number(given: Any, unit: str) -> None:
    assert event_in({"a": {"b": given}}, unit="value:a.b", needs_sequence=False).unit == unit


@pytest.mark.parametrize("given", [1.5, True, {"x": 1}, [1]])
def test_an_id_that_is_something_else_is_refused_and_named(given: Any) -> None:
    reason, error = refused({"a": {"b": given}}, unit="value:a.b")
    assert reason is DeadLetterReason.INVALID_ID
    assert error.startswith("unit (value:a.b) is ")


@pytest.mark.parametrize("value", [{}, {"a": None}, {"a": {"b": None}}, None])
def test_what_is_absent_or_null_on_the_way_is_missing(value: Any) -> None:
    assert refused(value, unit="value:a.b") == (
        DeadLetterReason.NO_UNIT_OF_WORK,
        "unit (value:a.b) is missing; set it to the unit of work, or correct the mapping",
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "truncated"),
        (b'{"a": 1}', "Expected `object"),
        (b"\xff{}", "not UTF-8"),
        (b'{"a": {"b": "x"}, "c": ' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_and_says_why(value: bytes, why: str) -> None:
    reason, error = refused(value, unit="value:a.b")
    assert reason is DeadLetterReason.UNDECODABLE
    assert why in error
    assert "correct the producer" in error


@pytest.mark.parametrize(
    ("given", "number"), [(3, 3), ("3", 3), ("0003", 3), (3.0, 3), (b"3", 3), (b"0003", 3), (b"x", None), ("x", None), (-1, None)]
)
def test_a_sequence_may_be_a_number_or_a_text_of_digits(given: Any, number: int | None) -> None:
    of_header = {"value": {}, "headers": (("n", given),), "sequence": "header:n"}
    how = of_header if isinstance(given, bytes) else {"value": {"n": given}, "sequence": "value:n"}
    assert event_in(how.pop("value"), needs_sequence=False, **how).sequence == number


@pytest.mark.parametrize("field", ["sequence", "flow", "type", "time", "previous"])
def test_a_header_that_was_null_and_is_empty_now_is_absent(field: str) -> None:
    mapping = {field: "header:it", "id": "digest", "needs_sequence": False}
    empty = event_in({}, headers=(("it", b""),), **mapping)
    assert empty == replace(event_in({}, **mapping), record=empty.record)
    assert refused({}, sequence="header:it", headers=(("it", b"3"), ("it", b"")))[0] is DeadLetterReason.NO_SEQUENCE


@pytest.mark.parametrize(("field", "reason"), [("unit", DeadLetterReason.NO_UNIT_OF_WORK), ("id", DeadLetterReason.INVALID_ID)])
def test_an_empty_header_in_which_an_event_needs_something_is_named_as_missing(field: str, reason: DeadLetterReason) -> None:
    mapping = {field: "header:it", "needs_sequence": False}
    found, error = refused({}, headers=(("it", b""),), **mapping)
    assert (found, error.partition(";")[0]) == (reason, f"{field} (header:it) is missing")


def test_without_a_needed_sequence_a_record_is_refused() -> None:
    assert refused({}, sequence="value:n")[0] is DeadLetterReason.NO_SEQUENCE
    assert refused({"n": "x"}, sequence="value:n")[0] is DeadLetterReason.INVALID_SEQUENCE


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (None, "sequence (header:n) is missing; send it, or correct events.mapped.sequence"),
        (b"x7", f"sequence (header:n) is 'x7'; send an integer from 1 to {2**53 - 1}"),
        (b"0", f"sequence (header:n) is '0'; send an integer from 1 to {2**53 - 1}, or set resequencer.first-sequence = 0"),
    ],
)
def test_an_error_of_a_sequence_names_its_place(given: bytes | None, error: str) -> None:
    headers = () if given is None else (("n", given),)
    assert refused({}, headers=headers, sequence="header:n")[1] == error


def test_ids_by_position_are_never_equal_and_those_by_digest_are_if_the_contents_are() -> None:
    assert event_in({}, id="position", needs_sequence=False).event_id == "events-2@41"
    one = event_in({"a": 1}, id="digest", needs_sequence=False)
    assert event_in({"a": 1}, id="digest", needs_sequence=False, headers=(("trace", b"x"),)).event_id == one.event_id
    for other in (
        event_in({"a": 2}, id="digest", needs_sequence=False),
        event_in({"a": 1}, id="digest", key=b"l", needs_sequence=False),
    ):
        assert other.event_id != one.event_id
    reason, error = refused({}, id="header:event-id", needs_sequence=False)
    assert (reason, error) == (
        DeadLetterReason.INVALID_ID,
        "id (header:event-id) is missing; set it, or correct the mapping",
    )


@pytest.mark.parametrize("sequence", [7, None])
def test_an_id_of_a_long_flow_and_a_number_or_digest_is_their_digest(sequence: int | None) -> None:
    flow = "f" * 255
    event = event_in({"f": flow, "n": sequence}, flow="value:f", sequence="value:n", needs_sequence=False)
    number = event.digest.hex() if sequence is None else sequence
    assert (event.flow, event.event_id) == (flow, short_digest(f"{flow}#{number}".encode()))
    assert len(event_in({"f": flow[1:], "n": 7}, flow="value:f", sequence="value:n").event_id) == 256


@pytest.mark.parametrize(
    ("given", "instant"),
    [
        (1_775_410_260_000, 1_775_410_260_000),
        ("1775410260000", 1_775_410_260_000),
        (1_775_410_260_000.75, 1_775_410_260_000),
        ("1775410260000.75", 1_775_410_260_000),
        (b"1.7e12", 1_700_000_000_000),
        ("1.7E+12", 1_700_000_000_000),
        (-1, -1),
        (-1.5, -2),
        ("-62135596800000", -62_135_596_800_000),
        (-62_135_596_800_001, None),
        (253_402_300_799_999, 253_402_300_799_999),
        (253_402_300_800_000, None),
        (b"1e400", None),
        (b"-1e400", None),
        ("9" * 5_000, None),
        ("1_0", None),
        ("٣", None),
        ("inf", None),
        ("2026-04-05T19:31:00+02:00", 1_775_410_260_000),
        ("now", None),
        (True, None),
    ],
)
def test_a_time_may_be_rfc_3339_or_milliseconds_since_1970(given: Any, instant: int | None) -> None:
    value = b'{"t": %b}' % given if isinstance(given, bytes) else {"t": given}
    time = event_in(value, time="value:t", needs_sequence=False).time
    assert (time, type(time)) == (instant, type(instant))


@pytest.mark.parametrize("given", [None, "soon", True, [1]])
def test_a_time_that_is_needed_and_is_none_is_refused_with_its_place(given: Any) -> None:
    decoder = MappedDecoder(DecodingSettings(needs_sequence=False, needs_time=True), Mapping(id="position", time="value:at"))
    refusal = decoder.decode(Record(ORIGIN, json.dumps({"at": given}).encode(), b"k"))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is DeadLetterReason.INVALID_TIME
    assert refusal.error.startswith("time (value:at) is missing or no time")


def test_a_change_that_debezium_captured() -> None:
    """Key and value have a schema and a payload; a deletion has its row in `before`."""
    key = json.dumps({"schema": {"type": "struct"}, "payload": {"id": 1001}}).encode()
    value = {"schema": {}, "payload": {"before": None, "after": {"id": 1001}, "source": {"lsn": 24023128}, "op": "u", "ts_ms": 5}}
    how = {
        "unit": "key:payload.id",
        "sequence": "value:payload.source.lsn",
        "type": "value:payload.op",
        "time": "value:payload.ts_ms",
    }
    event = event_in(value, key=key, **how)
    assert (event.unit, event.sequence, event.parts, event.time) == ("1001", 24023128, ("u",), 5)


def test_headers_that_spring_wrote_have_their_texts_in_quotes() -> None:
    types = ("spring_json_header_types", b'{"version": "java.lang.String"}')
    headers: Headers = (types, ("version", b'"4"'), ("flow", b'"orders"'))
    event = event_in(b"\x01", headers=headers, sequence="header:version", flow="header:flow")
    assert (event.sequence, event.flow) == (4, "orders")
    assert event_in(b"", headers=headers[2:], flow="header:flow", needs_sequence=False).flow == '"orders"'


def test_a_record_without_key_has_no_unit_and_a_key_that_is_not_utf_8_is_named() -> None:
    assert refused({}, key=None)[0] is DeadLetterReason.NO_UNIT_OF_WORK
    reason, error = refused({}, key=b"\xff")
    assert reason is DeadLetterReason.INVALID_ID
    assert error == "unit (key) is b'\\xff', which is not UTF-8; send text"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("key", Place("key", "key")),
        ("header:a:b", Place("header:a:b", "header", "a:b")),
        ("value:a.b.0", Place("value:a.b.0", "value", path=("a", "b", "0"))),
        ("key:id", Place("key:id", "key", path=("id",))),
    ],
)
def test_a_place_is_written_in_one_of_four_ways(text: str, place: Place) -> None:
    assert Place.of(text) == place


@pytest.mark.parametrize("text", ["", "value", "value:", "value:a..b", "value:.a", "header:", "body:a", "Key"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="use key, header:NAME, key:PATH or value:PATH"):
        Place.of(text)


def test_a_member_may_be_a_value_and_have_members_at_once() -> None:
    event = event_in({"a": "x"}, unit="value:a", needs_sequence=False)
    assert event.unit == "x"
    assert refused({"a": "x"}, unit="value:a", flow="value:a.b")[0] is DeadLetterReason.UNDECODABLE


def test_numbers_on_a_path_are_places_in_an_array_or_names_in_an_object() -> None:
    for value in ([{"id": "x"}], {"0": {"id": "x"}}, [{"id": "x"}, 1, "more"]):
        assert event_in(value, unit="value:0.id", needs_sequence=False).unit == "x"
    assert refused([], unit="value:0.id")[0] is DeadLetterReason.NO_UNIT_OF_WORK


def test_a_null_value_is_an_event_where_key_and_headers_say_all_and_is_not_an_empty_one() -> None:
    decoder = MappedDecoder(DecodingSettings(True), Mapping(sequence="header:version", id="digest"))
    null, empty = (decoder.decode(Record(ORIGIN, value, b"order-17", (("version", b"7"),))) for value in (None, b""))
    assert isinstance(null, Event)
    assert isinstance(empty, Event)
    assert (null.unit, null.sequence, null.record.value) == ("order-17", 7, None)
    assert null.digest != empty.digest
    assert null.event_id != empty.event_id


def test_what_is_mapped_from_a_null_value_is_missing() -> None:
    decoder = MappedDecoder(DecodingSettings(True), Mapping(unit="value:id", sequence="header:version"))
    refusal = decoder.decode(Record(ORIGIN, None, b"k", (("version", b"7"),)))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.error[:25]) == (DeadLetterReason.NO_UNIT_OF_WORK, "unit (value:id) is missin")
