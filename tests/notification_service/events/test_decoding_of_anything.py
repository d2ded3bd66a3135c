"""Decoding any bytes gives an envelope or a refusal (Hypothesis)."""

import json
from typing import Any

import pytest
from harness.examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from notification_service.events.format import MAX_SEQUENCE, DecodingSettings, read_body
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from resequencer.event import Refusal
from resequencer.record import Origin, Partition, Record

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
CONTEXT = ["processingContext", "unitOfWorkId", "flow", "sequence"]
ARRAYS = ["mdsObjects", "pdsObjects", "customObjects", "processObjects"]
OBJECTS = ["uniqueId", "objectType", "name", "key", "value", "object", "content", "KEY_VALUE", "PAIN_001"]
EVENTS = ["PROCESS_FLOW_EVENT", "eventName", "processFlowName", "reasonCode"]
NAMES = CONTEXT + ARRAYS + OBJECTS + EVENTS
LIKE_AN_ENVELOPE = st.recursive(
    st.none() | st.integers(-1, 5) | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=30,
)
IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=256)


def decoded(value: bytes, needs_sequence: bool = True) -> DataEnvelope | Refusal:
    """Decode, and check that an accepted envelope can be stored, compared and read."""
    record = Record(Origin(Partition("in", 0), 7), value, headers=(("schema-version", b"2"),))
    outcome = EnvelopeDecoder(DecodingSettings(needs_sequence=needs_sequence)).decode(record)
    if isinstance(outcome, Refusal):
        assert outcome.error.isprintable()
        assert len(outcome.error) < 400
        return outcome
    assert outcome.record.value == value
    assert all(len(each.encode()) > 0 for each in (outcome.unit, outcome.flow, outcome.envelope_id))
    assert len(outcome.digest) == len(outcome.id_hash) == 8
    assert outcome.sequence is None or 1 <= outcome.sequence <= MAX_SEQUENCE
    assert outcome.sequence is not None or not needs_sequence
    for kind in (outcome.mds_objects, outcome.pds_objects, outcome.custom_objects, outcome.process_objects):
        for each in kind:
            read_body(each.body)
    return outcome


@given(st.binary(), st.booleans())
def test_arbitrary_bytes_never_raise(value: bytes, needs_sequence: bool) -> None:
    decoded(value, needs_sequence)


@given(ANYTHING | LIKE_AN_ENVELOPE, st.booleans())
@settings(max_examples=examples(300))
def test_arbitrary_json_never_raises(value: object, needs_sequence: bool) -> None:
    decoded(json.dumps(value).encode(), needs_sequence)


@st.composite
def wires(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid envelope with bodies of each kind."""
    bodies = st.dictionaries(st.text(max_size=5), ANYTHING, max_size=3)
    mds = st.fixed_dictionaries({"objectType": st.sampled_from(["PAIN_001", "OTHER"]), "object": bodies})
    pds = st.fixed_dictionaries({"name": st.text(max_size=5), "object": ANYTHING})
    custom = st.fixed_dictionaries({"key": st.text(max_size=5), "value": ANYTHING})
    events = st.fixed_dictionaries({"eventName": st.text(max_size=5), "processFlowName": st.text(max_size=5)})
    process = st.fixed_dictionaries({"uniqueId": IDS, "objectType": st.just("PROCESS_FLOW_EVENT"), "object": events})
    return {
        "processingContext": {"unitOfWorkId": draw(IDS)},
        "flow": draw(IDS),
        "sequence": draw(st.integers(1, MAX_SEQUENCE)),
        "mdsObjects": draw(st.lists(mds, max_size=2)),
        "pdsObjects": draw(st.lists(pds, max_size=2)),
        "customObjects": draw(st.lists(custom, max_size=2)),
        "processObjects": draw(st.lists(process, max_size=2)),
    }


def _content(envelope: DataEnvelope) -> tuple[object, ...]:
    return (
        envelope.unit,
        envelope.flow,
        envelope.sequence,
        envelope.envelope_id,
        [(each.object_type, read_body(each.body)) for each in envelope.mds_objects],
        [(each.name, read_body(each.body)) for each in envelope.pds_objects],
        [(each.key, read_body(each.body)) for each in envelope.custom_objects],
        [(each.event_name, each.process_flow_name, each.unique_id) for each in envelope.process_objects],
    )


def _written_otherwise(draw: st.DrawFn, wire: dict[str, Any]) -> dict[str, Any]:
    """The same envelope with its keys in another order and with additional unknown fields; the bodies are unchanged."""
    fields = list(wire.items()) + [(f"x-{number}", draw(ANYTHING)) for number in range(draw(st.integers(0, 2)))]
    return {name: _otherwise(draw, name, value) for name, value in draw(st.permutations(fields))}


def _otherwise(draw: st.DrawFn, name: str, value: Any) -> Any:
    if name == "processingContext":
        return _written_otherwise(draw, value)
    if name.endswith("Objects"):
        return [_written_otherwise(draw, each) for each in value]
    return value


@given(st.data(), wires())
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_an_envelope_written_otherwise_says_the_same(data: st.DataObject, wire: dict[str, Any]) -> None:
    plain = decoded(json.dumps(wire, separators=(",", ":"), ensure_ascii=False).encode())
    assert isinstance(plain, DataEnvelope), plain
    assert (plain.unit, plain.flow, plain.sequence) == (wire["processingContext"]["unitOfWorkId"], wire["flow"], wire["sequence"])
    other = data.draw(st.composite(_written_otherwise)(wire))
    spaced = decoded(json.dumps(other, indent=data.draw(st.sampled_from([None, 1, "\t"]))).encode())
    assert isinstance(spaced, DataEnvelope), spaced
    assert _content(spaced) == _content(plain)
    assert spaced.id_hash == plain.id_hash


@pytest.fixture(scope="module")
def valid() -> bytes:
    process = {"uniqueId": "p|1", "objectType": "PROCESS_FLOW_EVENT", "object": {"eventName": "E", "processFlowName": "F"}}
    wire = {
        "processingContext": {"unitOfWorkId": "uow-1"},
        "flow": "F",
        "sequence": 1,
        "mdsObjects": [{"objectType": "PAIN_001", "object": {"GrpHdr": {"CtrlSum": 12.5, "MsgId": 'ü\\"'}}}],
        "customObjects": [{"objectType": "KEY_VALUE", "object": {"name": "n", "content": None}}],
        "processObjects": [process],
    }
    return json.dumps(wire, ensure_ascii=False).encode()


def test_an_envelope_cut_anywhere_is_a_refusal(valid: bytes) -> None:
    for length in range(len(valid)):
        assert isinstance(decoded(valid[:length]), Refusal)


@given(st.data())
@settings(max_examples=examples(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_envelope_is_an_envelope_or_a_refusal(valid: bytes, data: st.DataObject) -> None:
    """At a few places, bytes are replaced, removed, repeated or inserted."""
    value = valid
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(0, len(value)))
        end = data.draw(st.integers(begin, min(begin + 8, len(value))))
        put = data.draw(
            st.binary(max_size=4) | st.sampled_from([b"null", b'"', b"\\", b"[", b"{}", b"1e999", b"\\ud800", value[begin:]])
        )
        value = value[:begin] + put + value[end:]
    decoded(value, data.draw(st.booleans()))
