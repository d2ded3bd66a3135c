"""CloudEvents 1.0 in the forms that their specification and its bindings describe."""

import base64
import json
from typing import Any

import pytest
from msgspec.structs import replace

from notification_service.events.cloudevents import CloudEvent, CloudEventDecoder
from notification_service.events.format import DecodingSettings
from resequencer.clock import instant_text
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Refusal
from resequencer.notification import short_digest
from resequencer.record import Headers, Origin, Partition, Record

ATTRIBUTES = {
    "specversion": "1.0",
    "id": "A234-1234-1234",
    "source": "https://shop.example/orders",
    "type": "com.example.order.created",
    "subject": "order-17",
    "time": "2026-04-05T17:31:00Z",
    "sequence": "3",
}
JSON = "application/cloudevents+json"


def binary(prefix: str = "ce_", value: bytes = b'{"total": 12}', key: bytes | None = b"k", **changes: str | None) -> Record:
    given = {name: text for name, text in (ATTRIBUTES | changes).items() if text is not None}
    headers: Headers = tuple((f"{prefix}{name}", text.encode()) for name, text in given.items())
    return Record(Origin(Partition("orders", 0), 1), value, key, (*headers, ("content-type", b"application/json")))


def structured(value: Any = None, content_type: str | None = JSON, **changes: Any) -> Record:
    event = {name: each for name, each in (ATTRIBUTES | {"data": {"total": 12}} | changes).items() if each is not ...}
    raw = json.dumps(event if value is None else value).encode()
    headers: Headers = () if content_type is None else (("content-type", content_type.encode()),)
    return Record(Origin(Partition("orders", 0), 1), raw, b"k", headers)


def decoded(record: Record, *, needs_sequence: bool = True, first: int = 1, needs_time: bool = False) -> CloudEvent | Refusal:
    return CloudEventDecoder(DecodingSettings(needs_sequence, first_sequence=first, needs_time=needs_time)).decode(record)


def event_in(record: Record, **settings: Any) -> CloudEvent:
    event = decoded(record, **settings)
    assert isinstance(event, CloudEvent), event
    return event


def refused(record: Record, **settings: Any) -> tuple[DeadLetterReason, str]:
    refusal = decoded(record, **settings)
    assert isinstance(refusal, Refusal), refusal
    return refusal.reason, refusal.error


@pytest.mark.parametrize("prefix", ["ce_", "ce-", "cloudEvents_", "cloudEvents:", ""])
def test_binary_mode_has_the_attributes_in_headers_by_each_bindings_names(prefix: str) -> None:
    event = event_in(binary(prefix))
    assert (event.unit, event.flow, event.sequence) == ("order-17", "https://shop.example/orders", 3)
    assert (event.parts, event.time, event.data) == (("com.example.order.created",), 1_775_410_260_000, b'{"total": 12}')
    assert event.event_id == short_digest(b"https://shop.example/orders\0A234-1234-1234")
    assert event.attributes["id"] == "A234-1234-1234"


@pytest.mark.parametrize("prefix", ["Ce-", "CE-"])
def test_names_of_headers_of_http_have_no_case(prefix: str) -> None:
    record = binary(prefix)
    mixed = replace(record, headers=tuple((f"{name[:3]}{name[3:].title()}", value) for name, value in record.headers))
    for each in (record, mixed):
        assert event_in(each).attributes == event_in(binary("ce-")).attributes


@pytest.mark.parametrize(
    ("sent", "read"),
    [("B%C3%BCcher%20100%25", "Bücher 100%"), ('"a \\"b\\" %41"', 'a "b" A'), ("100%", "100%"), ('"', '"'), ("%2541", "%41")],
)
def test_values_of_headers_of_http_are_unescaped_once_and_others_are_not(sent: str, read: str) -> None:
    assert event_in(binary("ce-", subject=sent)).unit == read
    assert event_in(binary("ce_", subject=sent)).unit == sent


def test_a_header_of_http_that_is_not_utf_8_when_unescaped_is_named() -> None:
    reason, error = refused(binary("ce-", subject="%FF"))
    assert reason is DeadLetterReason.UNDECODABLE
    assert "'ce-subject' is not UTF-8" in error


@pytest.mark.parametrize("content_type", [JSON, "Application/CloudEvents+JSON; charset=UTF-8", None])
def test_structured_mode_has_all_in_the_value(content_type: str | None) -> None:
    event, same = event_in(structured(content_type=content_type, datacontenttype="application/json")), event_in(binary())
    assert (event.unit, event.flow, event.sequence, event.event_id) == (same.unit, same.flow, same.sequence, same.event_id)
    assert (event.parts, event.time, event.data) == (same.parts, same.time, same.data)
    assert event.attributes == same.attributes


def test_a_tombstone_in_binary_mode_is_an_event_without_data_and_in_structured_mode_none() -> None:
    event = event_in(replace(binary(), value=None))
    assert (event.unit, event.data, event.record.value) == ("order-17", None, None)
    assert refused(replace(structured(), value=None)) == (DeadLetterReason.UNDECODABLE, "it has no value")


def test_the_partition_key_names_the_unit_before_the_subject() -> None:
    assert event_in(binary(partitionkey="customer-4")).unit == "customer-4"
    assert event_in(structured(partitionkey="customer-4")).unit == "customer-4"


def test_extensions_may_be_numbers_and_booleans_in_json_and_null_is_absent() -> None:
    event = event_in(structured(sequence=7, sampled=True, retries=0, subject="s", nothing=None))
    assert event.sequence == 7
    assert (event.attributes["sampled"], event.attributes["retries"]) == ("true", "0")
    assert "nothing" not in event.attributes


def test_data_in_base64_is_bytes_and_no_data_is_none() -> None:
    event = event_in(structured(data=..., data_base64=base64.b64encode(b"\x00\xff").decode()))
    assert event.data == b"\x00\xff"
    assert event_in(structured(data=...)).data is None
    assert event_in(structured(data=None)).data is None


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("0007", 7), ("9007199254740991", 2**53 - 1)])
def test_a_sequence_of_digits_is_a_number(text: str, number: int) -> None:
    assert event_in(binary(sequence=text)).sequence == number


@pytest.mark.parametrize("text", ["a7", "-1", "1.5", "", "٣", "0", "9007199254740992"])
def test_a_sequence_that_is_no_number_is_refused_if_the_strategy_needs_one(text: str) -> None:
    reason, error = refused(binary(sequence=text))
    assert reason is DeadLetterReason.INVALID_SEQUENCE
    assert "sequence is" in error
    assert event_in(binary(sequence=text), needs_sequence=False).sequence is None


def test_zero_is_a_number_where_the_first_is_zero() -> None:
    assert event_in(binary(sequence="0"), first=0).sequence == 0
    assert refused(binary(sequence=None))[0] is DeadLetterReason.NO_SEQUENCE


@pytest.mark.parametrize("name", ["id", "source", "type"])
def test_what_is_missing_is_named(name: str) -> None:
    for record in (binary(**{name: None}), binary(**{name: ""}), structured(**{name: ...})):
        reason, error = refused(record)
        assert reason is DeadLetterReason.UNDECODABLE
        assert error == f"not a CloudEvent: {name} is missing; give each event one"


def test_an_event_without_unit_and_one_of_another_version_are_refused() -> None:
    assert refused(binary(subject=None))[0] is DeadLetterReason.NO_UNIT_OF_WORK
    reason, error = refused(structured(specversion="0.3"))
    assert (reason, error) == (DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION, "specversion is '0.3'; send 1.0")


@pytest.mark.parametrize(
    ("content_type", "remedy"),
    [
        ("application/cloudevents-batch+json", "send each event as a record of its own"),
        ("application/cloudevents+avro", "send application/cloudevents+json"),
        ("application/cloudevents+protobuf; charset=utf-8", "binary mode"),
    ],
)
def test_a_batch_and_other_formats_are_refused_with_the_remedy(content_type: str, remedy: str) -> None:
    reason, error = refused(structured(content_type=content_type))
    assert reason is DeadLetterReason.UNDECODABLE
    assert remedy in error


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"text", "not a CloudEvent"),
        (b"[]", "not a CloudEvent"),
        (b"\xff", "not UTF-8"),
        (b'{"specversion": "1.0", "id": "7"}', "source, type are missing; give each event all of them"),
        (b"{}", "specversion, id, source, type is missing"),
        (b'{"id": [1]}', "attribute 'id' is neither a text, nor a whole number, nor a boolean"),
        (b'{"data": 1, "data_base64": "AA=="}', "it has data and data_base64"),
        (b'{"data_base64": "A"}', "data_base64 is not base64"),
        (b'{"data": ' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper"),
    ],
)
def test_a_value_that_is_no_event_is_refused_and_says_why(value: bytes, why: str) -> None:
    record = Record(Origin(Partition("orders", 0), 1), value, b"k", (("content-type", JSON.encode()),))
    reason, error = refused(record)
    assert reason is DeadLetterReason.UNDECODABLE
    assert why in error


def test_a_header_that_is_not_utf_8_is_named() -> None:
    record = binary()
    reason, error = refused(Record(record.origin, b"", None, (*record.headers, ("ce_subject", b"\xff"))))
    assert reason is DeadLetterReason.UNDECODABLE
    assert "'ce_subject' is not UTF-8" in error


def test_long_sources_and_ids_become_digests_and_stay_in_the_attributes() -> None:
    long = "https://shop.example/" + "x" * 1_000
    event = event_in(binary(source=long, id="y" * 1_000))
    assert event.flow == short_digest(long.encode())
    assert len(event.event_id) == 32
    assert event.attributes["source"] == long


@pytest.mark.parametrize("form", [binary, structured])
def test_the_event_before_is_named_by_its_id_of_the_same_source(form: Any) -> None:
    first, second = event_in(form(id="1")), event_in(form(id="2", previousid="1"))
    assert (first.previous, second.previous) == (None, first.event_id)
    assert event_in(form(id="2", previousid="1", source="https://other.example")).previous != first.event_id
    assert event_in(form(id="2", previousid="")).previous is None
    assert event_in(binary(id="2")).digest != event_in(binary(id="2", previousid="1")).digest


def test_a_control_character_is_refused_wherever_it_is() -> None:
    for name in ("source", "id", "type", "subject", "previousid"):
        assert refused(binary(**{name: "x" * 300 + "\x01"}))[0] is DeadLetterReason.INVALID_ID


def test_an_event_that_came_twice_has_the_same_digest_and_other_content_another() -> None:
    first = event_in(binary())
    assert event_in(binary()).digest == first.digest
    traced = binary()
    traced = Record(traced.origin, traced.value, traced.key, (*traced.headers, ("traceparent", b"00-1-2-01")))
    assert event_in(traced).digest == first.digest
    for other in (binary(value=b"{}"), binary(key=None), binary(sequence="4"), binary(type="t"), binary(time=None)):
        assert event_in(other).digest != first.digest


@pytest.mark.parametrize(
    ("time", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-04-05T17:31:00.1239+02:00", 1_775_403_060_123),
        ("2026-04-05T17:31:00", None),
        ("yesterday", None),
        ("2026-12-31T23:59:60Z", 1_798_761_599_000),
        ("2027-01-01T01:59:60.25+02:00", 1_798_761_599_250),
        ("2026-12-31T23:59:61Z", None),
        ("0001-01-01T00:00:00Z", -62_135_596_800_000),
        ("0001-01-01T00:00:00+01:00", None),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("9999-12-31T23:59:59-01:00", None),
    ],
)
def test_the_time_is_one_of_rfc_3339_or_none(time: str, instant: int | None) -> None:
    assert event_in(binary(time=time)).time == instant
    assert instant is None or instant_text(instant)


@pytest.mark.parametrize("time", [None, "yesterday", "2026-04-05T17:31:00"])
def test_an_event_without_a_time_is_refused_if_the_strategy_needs_one(time: str | None) -> None:
    refusal = CloudEventDecoder(DecodingSettings(needs_sequence=False, needs_time=True)).decode(binary(time=time))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, "time is missing or no time" in refusal.error) == (DeadLetterReason.INVALID_TIME, True)


def test_a_record_with_thousands_of_headers_is_refused_before_it_is_read() -> None:
    record = binary()
    many = Record(record.origin, b"", None, record.headers + (("x", b""),) * 1_000)
    assert refused(many)[0] is DeadLetterReason.TOO_LARGE
