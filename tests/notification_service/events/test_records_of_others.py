"""What other programs write, fact by fact: CloudEvents' specification, Debezium, Spring, and Confluent's serializers.

The facts are those of their documentation and conformance tests; the records are made up.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from notification_service.events.cloudevents import CloudEvent, CloudEventDecoder
from notification_service.events.format import DecodingSettings
from notification_service.events.mapped import MappedDecoder, Mapping
from resequencer.dead_letter import DeadLetterReason
from resequencer.event import Event, Refusal
from resequencer.record import Headers, Origin, Partition, Record

ORIGIN = Origin(Partition("others", 0), 5)
STRUCTURED: Headers = (("content-type", b"application/cloudevents+json; charset=utf-8"),)
CORE = {"specversion": "1.0", "id": "e-1", "source": "/shop/orders", "type": "shop.order.paid", "subject": "o-1"}
WINDOW = DecodingSettings(needs_sequence=False, needs_time=True)


def cloud(headers: Headers, value: Any, settings: DecodingSettings = DecodingSettings(needs_sequence=False)) -> Any:  # noqa: B008 - frozen.
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return CloudEventDecoder(settings).decode(Record(ORIGIN, raw, b"key", headers))


def cloud_event(headers: Headers, value: Any) -> CloudEvent:
    found = cloud(headers, value)
    assert isinstance(found, CloudEvent), found
    return found


def in_headers(**more: str) -> Headers:
    return tuple((f"ce_{name}", text.encode()) for name, text in (CORE | more).items())


# CloudEvents


def test_in_binary_mode_the_media_type_of_the_record_is_the_attribute_datacontenttype() -> None:
    event = cloud_event((*in_headers(time="2026-04-05T17:31:00Z"), ("content-type", b"application/avro")), b"\x00\x01")
    assert event.attributes == CORE | {"time": "2026-04-05T17:31:00Z", "datacontenttype": "application/avro"}
    assert event.data == b"\x00\x01"


def test_the_media_type_alone_decides_on_structured_mode_though_the_attributes_are_headers_too() -> None:
    event = cloud_event((*in_headers(id="of the header"), *STRUCTURED), CORE)
    assert event.attributes["id"] == "e-1"


def test_without_the_media_type_the_attributes_in_headers_decide_on_binary_mode() -> None:
    assert cloud_event(in_headers(), CORE | {"id": "of the data"}).attributes["id"] == "e-1"


def test_optional_attributes_that_are_null_are_absent() -> None:
    event = cloud_event(STRUCTURED, CORE | {"datacontenttype": None, "dataschema": None, "time": None})
    assert (event.attributes, event.time, event.data) == (CORE, None, None)


@pytest.mark.parametrize("source", ["#fragment", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", "//shop/orders", "cloud"])
def test_a_source_is_any_reference_also_a_relative_one(source: str) -> None:
    assert cloud_event(STRUCTURED, CORE | {"source": source}).flow == source


@pytest.mark.parametrize(
    "time",
    ["2026-04-05T17:31:00Z", "2026-04-05T17:31:00.000000000Z", "2026-04-05T18:31:00+01:00", "2026-04-05T16:31:00-01:00"],
)
def test_a_time_has_any_offset_and_as_many_digits_as_nanoseconds_need(time: str) -> None:
    assert cloud_event(STRUCTURED, CORE | {"time": time}).time == 1_775_410_260_000


@pytest.mark.parametrize(
    "time",
    [
        *("noon", "2026-04-05T18:31Z", "2026-04-05T18:31:00X", "2026-04-05T18:31:00+25:00", "2026-04-05T18:31:00+xx:00"),
        *("2026-04-05T18:31:00+05", "2026-04-05", "17:31:00Z"),
    ],
)
def test_what_is_no_time_is_refused_where_the_order_needs_one(time: str) -> None:
    refused = cloud(STRUCTURED, CORE | {"time": time}, WINDOW)
    assert isinstance(refused, Refusal), refused
    assert refused.reason is DeadLetterReason.INVALID_TIME
    assert cloud_event(STRUCTURED, CORE | {"time": time}).time is None


def test_extensions_of_each_type_are_texts_as_the_specification_writes_them() -> None:
    extensions = {"count": 10, "sampled": True, "note": "text", "schema": "//authority/path", "bytes": "TWE="}
    attributes = cloud_event(STRUCTURED, CORE | extensions).attributes
    assert attributes == CORE | extensions | {"count": "10", "sampled": "true"}


def test_names_that_the_specification_does_not_allow_do_no_harm_because_nothing_reads_them() -> None:
    odd = {"MyExtension": "a", "my.extension": "b"}
    assert cloud_event(STRUCTURED, CORE | odd).attributes == CORE | odd
    assert cloud_event(STRUCTURED, CORE | {"datacontenttype": "xyz", "dataschema": ""}).event_id


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"specversion": ...}, "specversion is missing"),
        ({"id": ...}, "id is missing"),
        ({"type": ""}, "type is missing"),
        ({"source": None}, "source is missing"),
        ({"specversion": "0.9"}, "specversion is '0.9'; send 1.0"),
        ({"id": 25}, "attribute 'id' is no text"),
        ({"id": {"a": "b"}}, "attribute 'id' is neither a text"),
        ({"time": 1_775_410_260}, "attribute 'time' is no text"),
        ({"subject": True}, "attribute 'subject' is no text"),
        ({"ratio": 1.5}, "attribute 'ratio' is neither a text, nor a whole number"),
        ({"data": "text", "data_base64": "AA=="}, "it has data and data_base64"),
        ({"subject": ""}, "partitionkey and subject are missing"),
    ],
)
def test_an_event_that_is_none_is_refused_and_the_attribute_named(change: dict[str, Any], why: str) -> None:
    refused = cloud(STRUCTURED, {name: each for name, each in (CORE | change).items() if each is not ...})
    assert isinstance(refused, Refusal), refused
    assert why in refused.error


@pytest.mark.parametrize("value", [[], [CORE], [CORE, CORE | {"id": "e-2"}]])
def test_a_batch_is_refused_with_and_without_its_media_type(value: list[Any]) -> None:
    refused = cloud((("content-type", b"application/cloudevents-batch+json"),), value)
    assert isinstance(refused, Refusal)
    assert refused.error == "a batch of CloudEvents; send each event as a record of its own"
    assert isinstance(cloud(STRUCTURED, value), Refusal)


def test_a_sequence_of_type_integer_is_written_with_zeros_before_it_and_begins_at_1() -> None:
    needs = DecodingSettings(needs_sequence=True)
    event = cloud(in_headers(sequence="0000000001", sequencetype="Integer"), b"", needs)
    assert event.sequence == 1
    wrapped = cloud(in_headers(sequence="-2147483648", sequencetype="Integer"), b"", needs)
    assert wrapped.reason is DeadLetterReason.INVALID_SEQUENCE, "after 2^31 - 1 it begins again, below all that were before"


# Debezium

SOURCE = {"version": "3.0", "connector": "postgresql", "ts_ms": 1_775_410_260_000, "snapshot": "false", "schema": "public",
          "sequence": '["24023119","24023128"]', "table": "orders", "txId": 601, "lsn": 24023128, "xmin": None}  # fmt: skip
CAPTURED = Mapping(unit="key:id", sequence="value:source.lsn", type="value:op", time="value:source.ts_ms", id="digest")


def mapped(mapping: Mapping, value: Any, key: Any = None, headers: Headers = (), *, needs_sequence: bool = True) -> Any:
    raw, raw_key = (each if isinstance(each, bytes | None) else json.dumps(each).encode() for each in (value, key))
    return MappedDecoder(DecodingSettings(needs_sequence), mapping).decode(Record(ORIGIN, raw or b"", raw_key, headers))


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [("r", None, {"id": 7}), ("c", None, {"id": 7}), ("u", {"id": 7}, {"id": 7}), ("d", {"id": 7, "total": 12}, None)],
)
def test_a_change_is_of_the_row_that_its_key_names_also_if_it_is_a_deletion(op: str, before: Any, after: Any) -> None:
    change = {"before": before, "after": after, "source": SOURCE, "op": op, "ts_ms": 1_775_410_260_500, "transaction": None}
    event = mapped(CAPTURED, change, {"id": 7})
    assert isinstance(event, Event), event
    assert (event.unit, event.sequence, event.parts, event.time) == ("7", 24023128, (op,), 1_775_410_260_000)
    with_schema = Mapping(unit="key:payload.id", sequence="value:payload.source.lsn", type="value:payload.op")
    wrapped = mapped(with_schema, {"schema": {"type": "struct"}, "payload": change}, {"schema": {}, "payload": {"id": 7}})
    assert (wrapped.unit, wrapped.sequence, wrapped.parts) == ("7", 24023128, (op,))


def test_a_key_of_several_columns_is_a_unit_as_it_is_written() -> None:
    event = mapped(Mapping(id="position"), {}, {"region": "north", "id": 7}, needs_sequence=False)
    assert event.unit == '{"region": "north", "id": 7}'


def test_a_place_in_the_log_that_is_a_text_is_no_number_and_is_refused_with_the_field() -> None:
    sql_server = {"source": {"change_lsn": "00000027:00000ac0:0002"}, "op": "u"}
    refused = mapped(Mapping(unit="key:id", sequence="value:source.change_lsn"), sql_server, {"id": 7})
    assert (refused.reason, "00000027:00000ac0:0002" in refused.error) == (DeadLetterReason.INVALID_SEQUENCE, True)


def test_an_event_of_an_outbox_has_its_aggregate_as_key_and_its_id_in_a_header() -> None:
    headers: Headers = (("id", b"4d47e190-0402-4048-bc2c-89dd54343cdc"), ("eventType", b"OrderCreated"), ("version", b"1"))
    outbox = Mapping(sequence="header:version", id="header:id", type="header:eventType")
    event = mapped(outbox, {"lines": []}, b"o-1", headers)
    assert (event.unit, event.event_id, event.parts) == ("o-1", "4d47e190-0402-4048-bc2c-89dd54343cdc", ("OrderCreated",))


# Spring

SPLIT: Headers = (
    ("correlationId", b'"8e2f0c2e-6a0b-4a5e-9d0c-2b8f5d0a1c11"'),
    ("sequenceNumber", b"2"),
    ("sequenceSize", b"3"),
    ("contentType", b"application/json"),
    ("scst_partition", b"1"),
    ("note", b'"said" by her'),
    (
        "spring_json_header_types",
        b'{"correlationId":"java.util.UUID","sequenceNumber":"java.lang.Integer","contentType":"java.lang.String"}',
    ),
)


def test_a_message_of_a_splitter_is_ordered_by_the_headers_that_spring_gives_it() -> None:
    event = mapped(Mapping(unit="header:correlationId", sequence="header:sequenceNumber"), b"[1]", None, SPLIT)
    assert (event.unit, event.sequence) == ("8e2f0c2e-6a0b-4a5e-9d0c-2b8f5d0a1c11", 2)


@pytest.mark.parametrize(("name", "text"), [("contentType", "application/json"), ("note", '"said" by her')])
def test_a_text_that_spring_did_not_write_as_json_is_read_as_it_is(name: str, text: str) -> None:
    event = mapped(
        Mapping(unit="header:correlationId", sequence="header:sequenceNumber", type=f"header:{name}"), b"", None, SPLIT
    )
    assert event.parts == (text,)


# Confluent's serializers

AVRO = b"\x00" + (100_042).to_bytes(4, "big") + b"\x06o-1\x02\xff"


def test_a_value_with_the_number_of_its_schema_stays_bytes_and_headers_say_what_it_is() -> None:
    headers: Headers = (("order", b"o-1"), ("version", b"3"))
    event = mapped(Mapping(unit="header:order", sequence="header:version"), AVRO, AVRO, headers)
    assert (event.unit, event.sequence, event.record.value, event.record.key) == ("o-1", 3, AVRO, AVRO)


def test_one_whose_schema_a_header_names_is_no_other() -> None:
    headers: Headers = (("__value_schema_id", b"\x01" + bytes(range(16))), ("version", b"3"))
    assert mapped(Mapping(sequence="header:version"), b"\x06o-1", b"o-1", headers).unit == "o-1"


def test_a_key_in_avro_is_no_unit_and_json_behind_the_number_of_a_schema_is_no_json() -> None:
    key = mapped(Mapping(id="position"), b"", b"\x00\x00\x00\x00\x05\x06o-1", needs_sequence=False)
    assert (key.reason, key.error.startswith("unit (key) contains a control character")) == (DeadLetterReason.INVALID_ID, True)
    value = mapped(Mapping(unit="value:id", id="position"), b'\x00\x00\x00\x00\x05{"id": "o-1"}', needs_sequence=False)
    assert (value.reason, "not a record of the mapping" in value.error) == (DeadLetterReason.UNDECODABLE, True)
