"""Decoding: the envelope of a record, or the reason of its dead letter."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

import notification_service.payments.decoding
from notification_service.events.format import MAX_DEPTH, MAX_SEQUENCE, DecodingSettings, read_body
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import MAX_OBJECTS, CustomObject, DataEnvelope, MdsObject, PdsObject
from resequencer.dead_letter import DeadLetterReason as Reason
from resequencer.event import Refusal
from resequencer.record import Cut, Origin, Partition, Record


def envelope(decoded: DataEnvelope | Refusal) -> DataEnvelope:
    assert isinstance(decoded, DataEnvelope), decoded
    return decoded


def refusal(decoded: DataEnvelope | Refusal, reason: Reason) -> str:
    assert isinstance(decoded, Refusal), decoded
    assert decoded.reason is reason
    assert decoded.error.isprintable()
    assert 0 < len(decoded.error) < 400
    return decoded.error


# The contents of an envelope


def test_every_field_of_an_envelope_arrives(decode: Any, wire: Any) -> None:
    decoded = envelope(decode(wire))
    assert (decoded.unit, decoded.flow, decoded.sequence) == ("uow-1", "PaymentInitiationFlow", 4)
    assert decoded.envelope_id == "PaymentFlow|e1|7"
    assert decoded.offset == 7
    assert [each.object_type for each in decoded.mds_objects] == [each["objectType"] for each in wire["mdsObjects"]]
    assert json.loads(decoded.mds_objects[0].body) == {"GrpHdr": {"MsgId": "Ü-1"}}
    assert decoded.pds_objects == (PdsObject("pdsBusinessData", "JourneyType", b'{"value": "PAYMENT"}'),)
    assert decoded.custom_objects == (CustomObject("BusinessData", b"[1, 2]"),)
    (event,) = decoded.process_objects
    assert (event.event_name, event.process_flow_name, event.reason_code) == (
        "PaymentRejected",
        "PaymentInitiationFlow",
        "AC04",
    )
    assert json.loads(event.body)["eventName"] == "PaymentRejected"


def test_the_smallest_envelope_has_a_unit_and_a_flow(decode: Any) -> None:
    decoded = envelope(decode({"processingContext": {"unitOfWorkId": "u"}, "flow": "f"}, needs_sequence=False))
    assert (decoded.mds_objects, decoded.pds_objects, decoded.custom_objects, decoded.process_objects) == ((), (), (), ())


@pytest.mark.parametrize("field", ["mdsObjects", "pdsObjects", "customObjects", "processObjects"])
@pytest.mark.parametrize("there", ["null", "absent", "empty"])
def test_arrays_may_be_null_absent_or_empty(decode: Any, wire: Any, field: str, there: str) -> None:
    wire[field] = [] if there == "empty" else None
    if there == "absent":
        del wire[field]
    envelope(decode(wire))


@pytest.mark.parametrize("version", [b"1", b"2", None])
def test_both_custom_object_shapes_are_read_under_either_schema_version(decode: Any, wire: Any, version: bytes | None) -> None:
    wire["customObjects"] = [
        {"key": "A", "value": {"x": 1}},
        {"objectType": "KEY_VALUE", "object": {"name": "B", "content": "text"}},
    ]
    headers = () if version is None else (("schema-version", version),)
    assert envelope(decode(wire, headers)).custom_objects == (CustomObject("A", b'{"x": 1}'), CustomObject("B", b'"text"'))


def test_both_spellings_of_the_transaction_become_one(decode: Any, wire: Any) -> None:
    wire["mdsObjects"] = [{"objectType": "PAIN_001_CREDIT_TRANSFER_TRANSACTION", "object": {"a": 1}}]
    assert envelope(decode(wire)).mds_objects == (MdsObject("PAIN_001_PAYMENT_TRANSACTION", b'{"a": 1}'),)


def test_unknown_object_types_are_kept_as_they_came(decode: Any, wire: Any) -> None:
    wire["mdsObjects"] = [{"objectType": "CAMT_056", "object": 5}, {"object": [1]}, {"objectType": "EMPTY"}]
    wire["customObjects"] = [{"objectType": "OTHER", "object": 1}]
    wire["pdsObjects"] = [{"object": 1}]
    decoded = envelope(decode(wire))
    assert decoded.mds_objects == (MdsObject("CAMT_056", b"5"), MdsObject("", b"[1]"), MdsObject("EMPTY", b"null"))
    assert decoded.custom_objects == (CustomObject("", b"null"),)
    assert decoded.pds_objects == (PdsObject("", None, b"1"),)


@pytest.mark.parametrize("body", [5, "text", [1], {"eventName": 5}, None])
def test_what_an_unknown_process_object_holds_is_its_own_affair(decode: Any, wire: Any, body: object) -> None:
    wire["processObjects"][0] |= {"objectType": "OTHER", "object": body}
    (event,) = envelope(decode(wire)).process_objects
    assert (event.event_name, event.process_flow_name, event.reason_code) == (None, None, None)
    assert json.loads(event.body) == body


def test_a_byte_order_mark_is_tolerated_once(decode: Any, wire: Any) -> None:
    value = json.dumps(wire).encode()
    assert envelope(decode(b"\xef\xbb\xbf" + value)).digest == envelope(decode(value)).digest
    refusal(decode(b"\xef\xbb\xbf" * 2 + value), Reason.UNDECODABLE)


# Ids and digests


def test_without_a_process_object_the_envelope_id_is_flow_and_sequence(decode: Any, wire: Any) -> None:
    wire["processObjects"] = []
    assert envelope(decode(wire)).envelope_id == "PaymentInitiationFlow#4"


@pytest.mark.parametrize("first", [{}, {"uniqueId": None}])
def test_a_first_process_object_without_an_id_makes_it_flow_and_sequence_too(decode: Any, wire: Any, first: Any) -> None:
    wire["processObjects"].insert(0, first)
    assert envelope(decode(wire)).envelope_id == "PaymentInitiationFlow#4"


def test_without_process_object_and_sequence_only_the_very_same_is_a_duplicate(decode: Any, wire: Any) -> None:
    """The parts of a payment may come in envelopes of their own without numbers; they are no conflicting duplicates."""
    wire |= {"processObjects": [], "sequence": None}
    one = envelope(decode(wire, needs_sequence=False))
    same = envelope(decode(wire, needs_sequence=False))
    other = envelope(decode(wire | {"mdsObjects": []}, needs_sequence=False))
    assert one.envelope_id == same.envelope_id == f"PaymentInitiationFlow#{one.digest.hex()}"
    assert one.envelope_id != other.envelope_id


def test_digest_and_id_hash_never_change_for_they_are_stored(decode: Any, wire: Any) -> None:
    decoded = envelope(decode(wire))
    assert decoded.digest.hex() == "090bc2ead44ad061"
    assert decoded.id_hash.hex() == "d9c3135e8214f16d"


def _changed(wire: Any, path: str, value: object) -> Any:
    copy = json.loads(json.dumps(wire))
    *steps, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    at = copy
    for step in steps:
        at = at[step]
    at[last] = value
    return copy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("flow", "OtherFlow"),
        ("sequence", 5),
        ("mdsObjects.0.object", {}),
        ("mdsObjects.0.objectType", "CAMT_056"),
        ("pdsObjects.0.object", 1),
        ("pdsObjects.0.name", "other"),
        ("customObjects.0.value", 1),
        ("customObjects.0.key", "other"),
        ("processObjects.0.object", {}),
        ("processObjects.0.objectType", "OTHER"),
        ("customObjects", []),
    ],
)
def test_the_digest_covers_flow_sequence_and_every_body_with_its_name(decode: Any, wire: Any, path: str, value: object) -> None:
    assert envelope(decode(_changed(wire, path, value))).digest != envelope(decode(wire)).digest


@pytest.mark.parametrize("path", ["createdAt", "processingContext.clientRequestId", "mdsObjects.0.uniqueId"])
def test_the_digest_leaves_out_what_a_second_sending_may_change(decode: Any, wire: Any, path: str) -> None:
    assert envelope(decode(_changed(wire, path, "another"))).digest == envelope(decode(wire)).digest


def test_the_digest_cannot_be_fooled_by_moving_a_boundary(decode: Any, wire: Any) -> None:
    digests = set()
    for custom in ([("ab", "c")], [("a", "bc")], [("", "abc")], [("a", "b"), ("c", "")], [("a", ""), ("b", "c")]):
        wire["customObjects"] = [{"key": key, "value": value} for key, value in custom]
        digests.add(envelope(decode(wire)).digest)
    assert len(digests) == 5


# Records that are refused unread


def test_a_defect_of_the_source_is_undecodable_in_its_own_words(decode: Any) -> None:
    assert refusal(decode(b"x", defect="line 3 is no JSON"), Reason.UNDECODABLE) == "line 3 is no JSON"


def test_a_null_value_is_undecodable_before_anything_else_is_looked_at() -> None:
    decode = EnvelopeDecoder(DecodingSettings(needs_sequence=True)).decode
    for headers in ((), (("schema-version", b"9"),), (("a", b""),) * 1_001):
        assert decode(Record(Origin(Partition("T", 0), 1), None, b"k", headers)) == Refusal(Reason.UNDECODABLE, "it has no value")


def test_a_cut_value_is_too_large_and_its_whole_length_is_told(decode: Any, wire: Any) -> None:
    assert "77777" in refusal(decode(wire, cut=Cut(7_777_777, "00")), Reason.TOO_LARGE)


def test_a_value_that_was_cut_below_the_limit_names_the_limit_that_cut_it(decode: Any, wire: Any) -> None:
    assert "max.message.bytes" in refusal(decode(wire, cut=Cut(77_777, "00")), Reason.TOO_LARGE)


def test_the_limit_is_a_length_that_is_still_accepted(wire: Any) -> None:
    value = json.dumps(wire).encode()
    record = Record(Origin(Partition("in", 0), 7), value)
    envelope(EnvelopeDecoder(DecodingSettings(needs_sequence=True, max_value_bytes=len(value))).decode(record))
    short = EnvelopeDecoder(DecodingSettings(needs_sequence=True, max_value_bytes=len(value) - 1))
    assert str(len(value)) in refusal(short.decode(record), Reason.TOO_LARGE)


def test_key_and_headers_have_the_same_limit(wire: Any) -> None:
    value = json.dumps(wire).encode()
    decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=True, max_value_bytes=len(value)))
    record = Record(Origin(Partition("in", 0), 7), value, b"k", headers=(("trace", b"x" * (len(value) - 6)),))
    envelope(decoder.decode(record))
    assert "headers" in refusal(decoder.decode(msgspec.structs.replace(record, key=b"kk")), Reason.TOO_LARGE)


def test_headers_without_a_byte_are_counted_too(decode: Any, wire: Any) -> None:
    """A header takes two bytes in a batch and a hundred in memory."""
    envelope(decode(wire, headers=(("", b""),) * 1_000))
    assert "1001 headers" in refusal(decode(wire, headers=(("", b""),) * 1_001), Reason.TOO_LARGE)


def test_fifty_megabytes_are_too_large(decode: Any) -> None:
    refusal(decode(b"[" * 50_000_000), Reason.TOO_LARGE)


@pytest.mark.parametrize("version", [b"3", b"", b" 2", b"two", b"\xff\n", b"2" * 1_000])
def test_another_schema_version_is_unsupported(decode: Any, wire: Any, version: bytes) -> None:
    assert "send 1 or 2" in refusal(decode(wire, (("schema-version", version),)), Reason.UNSUPPORTED_SCHEMA_VERSION)


def test_of_two_schema_versions_the_last_counts(decode: Any, wire: Any) -> None:
    envelope(decode(wire, (("schema-version", b"9"), ("schema-version", b"1"))))
    refusal(decode(wire, (("schema-version", b"1"), ("schema-version", b"9"))), Reason.UNSUPPORTED_SCHEMA_VERSION)


# Objects without number

FIELDS = ["mdsObjects", "pdsObjects", "customObjects", "processObjects"]


@pytest.mark.parametrize("field", FIELDS)
def test_a_thousand_objects_of_a_kind_are_accepted_and_one_more_is_too_many(decode: Any, wire: Any, field: str) -> None:
    wire[field] = [{}] * MAX_OBJECTS
    envelope(decode(wire))
    wire[field].append({})
    assert str(MAX_OBJECTS) in refusal(decode(wire), Reason.TOO_MANY_OBJECTS)


def test_each_kind_is_counted_by_itself_and_what_lies_in_a_body_is_not(decode: Any, wire: Any) -> None:
    for field in FIELDS:
        wire[field] = [{}] * 900
    wire["mdsObjects"][0] = {"objectType": "X", "object": {"rows": [{}] * 5_000}}
    assert len(envelope(decode(wire)).process_objects) == 900


def test_of_an_array_that_comes_twice_each_is_counted(decode: Any) -> None:
    """The last array counts for the envelope, but the first would take memory."""
    value = (
        b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "processObjects": [%s], "processObjects": []}'
    )
    refusal(decode(value % b",".join([b"{}"] * (MAX_OBJECTS + 1))), Reason.TOO_MANY_OBJECTS)


@pytest.mark.parametrize("field", FIELDS)
def test_what_has_another_shape_is_undecodable_however_many_braces_it_has(decode: Any, wire: Any, field: str) -> None:
    for wrong in ({str(number): {} for number in range(2_000)}, [5] + [{"a": {}}] * 900, "{" * 2_000):
        wire[field] = wrong
        refusal(decode(wire), Reason.UNDECODABLE)


@pytest.mark.parametrize("filling", [b"{}", b'{"object":{}}', b'{"uniqueId":"a"}'])
def test_five_megabytes_of_objects_are_refused_before_they_take_memory(decode: Any, filling: bytes) -> None:
    """Decoded objects would take 190 MB."""
    value = b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "processObjects": [%s]}'
    value %= b",".join([filling] * (5_000_000 // (len(filling) + 1)))
    decode(value[:100])
    tracemalloc.start()
    refusal(decode(value), Reason.TOO_MANY_OBJECTS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


# Values that are no envelope


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"\x00",
        b"null",
        b"5",
        b'"text"',
        b"[]",
        b"{",
        b"{}{}",
        b"{'flow': 1}",
        b"\xff\xfe{\x00}\x00",
        b"NaN",
        b'{"flow": NaN}',
    ],
)
def test_what_is_no_json_object_is_undecodable(decode: Any, value: bytes) -> None:
    refusal(decode(value), Reason.UNDECODABLE)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("processingContext", []),
        ("processingContext", "uow-1"),
        ("processingContext.unitOfWorkId", 5),
        ("flow", 5),
        ("flow", None),
        ("flow", ["f"]),
        ("mdsObjects", {}),
        ("mdsObjects", "x"),
        ("mdsObjects.0", None),
        ("mdsObjects.0", 5),
        ("mdsObjects.0.objectType", 5),
        ("mdsObjects.0.object", None),
        ("mdsObjects.1.object", "text"),
        ("mdsObjects.2.object", [1]),
        ("pdsObjects.0.name", 5),
        ("customObjects.0.key", 5),
        ("customObjects.0", {"objectType": "KEY_VALUE", "object": "text"}),
        ("customObjects.0", {"objectType": "KEY_VALUE", "object": {"name": 5}}),
        ("processObjects", 5),
        ("processObjects.0.uniqueId", 5),
        ("processObjects.0.object", 5),
        ("processObjects.0.object", "text"),
        ("processObjects.0.object.eventName", 5),
        ("processObjects.0.object.processFlowName", {}),
        ("processObjects.0.object.reasonCode", ["AC04"]),
    ],
)
def test_wrong_types_are_undecodable(decode: Any, wire: Any, path: str, value: object) -> None:
    refusal(decode(_changed(wire, path, value)), Reason.UNDECODABLE)


def test_the_error_names_the_place_but_shows_no_payment_data(decode: Any, wire: Any) -> None:
    error = refusal(decode(_changed(wire, "pdsObjects.0.name", {"Nm": "Erika Mustermann"})), Reason.UNDECODABLE)
    assert "$.pdsObjects[0].name" in error
    assert "Erika" not in error


@pytest.mark.parametrize(
    "place",
    [
        b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "unknown": "%s"}',
        b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "%s": 1}',
        b'{"processingContext": {"unitOfWorkId": "u%s"}, "flow": "f", "sequence": 1}',
        b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "mdsObjects": [{"object": {"a": "%s"}}]}',
        b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "processObjects": [{"object": "%s"}]}',
    ],
)
@pytest.mark.parametrize(
    "broken", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", rb"\ud800", rb"\udc00", rb"\ud800 and more text", b"\n"]
)
def test_broken_utf8_surrogates_and_control_bytes_are_undecodable_anywhere(decode: Any, place: bytes, broken: bytes) -> None:
    envelope(decode(place % b"fine"))
    refusal(decode(place % broken), Reason.UNDECODABLE)


def _nested(levels: int, opening: bytes, closing: bytes) -> bytes:
    body = opening * levels + b"1" + closing * levels
    return (
        b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "mdsObjects": [{"objectType": "X", "object": '
        + body
        + b"}]}"
    )


NESTS = [(b"[", b"]"), (b'[{"a": ', b"}]"), (b'{"]}\\"": ', b"}"), (b'{"\\\\": ', b"}")]


@pytest.mark.parametrize(("opening", "closing"), NESTS)
@pytest.mark.parametrize("levels", [10_000, 400, MAX_DEPTH])
def test_deep_nesting_is_undecodable(decode: Any, opening: bytes, closing: bytes, levels: int) -> None:
    assert "nested" in refusal(decode(_nested(levels, opening, closing)), Reason.UNDECODABLE)


def test_what_is_just_not_too_deep_can_be_read_later(decode: Any) -> None:
    outer = 3  # The envelope, the array of its objects, the object.
    (deep,) = envelope(decode(_nested(MAX_DEPTH - outer, b"[", b"]"))).mds_objects
    read_body(deep.body)
    refusal(decode(_nested(MAX_DEPTH - outer + 1, b"[", b"]")), Reason.UNDECODABLE)


def test_many_brackets_beside_each_other_or_in_strings_are_not_deep(decode: Any, wire: Any) -> None:
    wire["mdsObjects"] += [{"objectType": "X", "object": [[{}] * 500, '[{"' * 500, '\\"[' * 500]}]
    envelope(decode(wire))


def test_numbers_that_python_cannot_hold_are_text_to_the_reader_or_undecodable(decode: Any) -> None:
    value = b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "mdsObjects": [{"object": [%s]}]}'
    (held,) = envelope(decode(value % b"1e400, 12.50, 7")).mds_objects
    assert read_body(held.body) == ["1e400", "12.50", 7]
    read_body(envelope(decode(value % (b"9" * 4_300))).mds_objects[0].body)
    assert "digits" in refusal(decode(value % (b"9" * 4_301)), Reason.UNDECODABLE)
    envelope(decode(value % (b'"' + b"9" * 10_000 + b'"')))


@pytest.mark.parametrize(
    ("literal", "is_read"),
    [
        (b"9" * 4_300, True),
        (b"9" * 4_301, False),
        (b"-" + b"9" * 4_301, False),
        (b"9" * 4_301 + b".5", True),
        (b"9" * 4_301 + b"e5", True),
        (b"0." + b"9" * 4_301, True),
        (b"1e" + b"9" * 4_301, True),
        (b"1e-" + b"9" * 4_301, True),
        (b"1E+" + b"9" * 4_301, True),
        (b'"' + b"9" * 4_301 + b'"', True),
        (b'"\\\\\\"' + b"9" * 4_301 + b'"', True),
        (b'"\\\\",' + b"9" * 4_301, False),
        (b'"\\u1234' + b"9" * 4_301 + b'",' + b"9" * 4_301, False),
    ],
)
def test_only_an_integer_can_be_too_long(decode: Any, literal: bytes, is_read: bool) -> None:
    value = (
        b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "mdsObjects": [{"object": [%s]}]}' % literal
    )
    if is_read:
        read_body(envelope(decode(value)).mds_objects[0].body)
    else:
        assert "digits" in refusal(decode(value), Reason.UNDECODABLE)
        with pytest.raises(msgspec.ValidationError):
            read_body(b"[" + literal + b"]")


@pytest.mark.parametrize("filling", [b'"",', b'"ab",', b"{},", b'{"":123},', b"1,"])
@pytest.mark.parametrize("beginning", [b"{}," * 200, b"9" * 4_100 + b","])
def test_looking_for_flaws_takes_no_memory_beyond_some_copies_of_the_value(decode: Any, filling: bytes, beginning: bytes) -> None:
    value = b'{"processingContext": {"unitOfWorkId": "u"}, "flow": "f", "sequence": 1, "mdsObjects": [{"object": [%s1]}]}'
    value %= beginning + filling * (1_000_000 // len(filling))
    envelope(decode(value))
    tracemalloc.start()
    envelope(decode(value))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(value)


# Ids


def test_without_a_unit_there_is_no_unit_of_work(decode: Any, wire: Any) -> None:
    for context in (None, {}, {"unitOfWorkId": None}):
        wire["processingContext"] = context
        assert "unitOfWorkId" in refusal(decode(wire), Reason.NO_UNIT_OF_WORK)
    del wire["processingContext"]
    refusal(decode(wire), Reason.NO_UNIT_OF_WORK)


ID_PATHS = ["processingContext.unitOfWorkId", "flow", "processObjects.0.uniqueId"]


@pytest.mark.parametrize("path", ID_PATHS)
@pytest.mark.parametrize("identifier", ["", "x" * 257, "ü" * 257, "a\nb", "\x00", "a\x7f", "a\x85", "\x1b[31m"])
def test_empty_long_and_control_characters_are_no_id(decode: Any, wire: Any, path: str, identifier: str) -> None:
    assert path.rsplit(".", 1)[-1] in refusal(decode(_changed(wire, path, identifier)), Reason.INVALID_ID)


@pytest.mark.parametrize("path", ID_PATHS)
@pytest.mark.parametrize("identifier", ["x", "x" * 256, "\U0001f600" * 256, "Ü|#/ '\"\\", "a\u200db", "\u2028"])
def test_every_other_character_may_stand_in_an_id(decode: Any, wire: Any, path: str, identifier: str) -> None:
    envelope(decode(_changed(wire, path, identifier)))


# Sequences


@pytest.mark.parametrize(("raw", "sequence"), [("1", 1), ("3.0", 3), ("3e2", 300), (str(MAX_SEQUENCE), MAX_SEQUENCE)])
def test_a_sequence_is_a_whole_number_however_it_is_written(decode: Any, wire: Any, raw: str, sequence: int) -> None:
    value = json.dumps(wire).replace('"sequence": 4', f'"sequence": {raw}').encode()
    assert envelope(decode(value)).sequence == sequence


def test_a_missing_sequence_matters_only_where_it_is_needed(decode: Any, wire: Any) -> None:
    for change in (lambda: wire.update(sequence=None), lambda: wire.pop("sequence")):
        change()
        assert "sequence" in refusal(decode(wire), Reason.NO_SEQUENCE)
        assert envelope(decode(wire, needs_sequence=False)).sequence is None


INVALID_SEQUENCES = [
    "0",
    "-0",
    "-1",
    "2.5",
    '"3"',
    "true",
    "{}",
    "[1]",
    str(2**53),
    str(2**63),
    "1e400",
    "1" * 4_000,
    "9" * 5_000,
]


@pytest.mark.parametrize("raw", INVALID_SEQUENCES)
def test_an_invalid_sequence_matters_only_where_it_is_needed(decode: Any, wire: Any, raw: str) -> None:
    value = json.dumps(wire).replace('"sequence": 4', f'"sequence": {raw}').encode()
    if len(raw) < 4_300:
        assert envelope(decode(value, needs_sequence=False)).sequence is None
        assert f"integer from 1 to {MAX_SEQUENCE}" in refusal(decode(value), Reason.INVALID_SEQUENCE)
    else:
        refusal(decode(value), Reason.UNDECODABLE)


@pytest.mark.parametrize("error", [ArithmeticError("a bug of ours"), MemoryError(), AssertionError("never so")], ids=repr)
def test_a_record_on_which_decoding_itself_fails_is_one_dead_letter_too(
    decode: Any, wire: Any, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(value: bytes) -> Any:
        raise error

    monkeypatch.setattr(notification_service.payments.decoding, "_read", read)
    problem = refusal(decode(wire), Reason.UNDECODABLE)
    assert type(error).__name__ in problem
    assert "the service failed on it" in problem
