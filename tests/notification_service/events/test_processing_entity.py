"""The processing entity of an envelope: no value of it is a reason for a refusal."""

import msgspec
import pytest

from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from resequencer.record import Origin, Partition, Record

_decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=False))


def decoded(**context: object) -> DataEnvelope:
    value = msgspec.json.encode({"processingContext": {"unitOfWorkId": "u", **context}, "flow": "F", "sequence": 1})
    envelope = _decoder.decode(Record(Origin(Partition("T", 0), 0), value))
    assert isinstance(envelope, DataEnvelope), envelope
    return envelope


@pytest.mark.parametrize(
    ("value", "entity"),
    [("BANK_001", "BANK_001"), (None, None), ("", None), (7, None), (["x"], None), ("a\x1fb", None), ("x" * 257, None)],
)
def test_a_processing_entity_is_taken_if_it_is_fit_for_an_id(value: object, entity: str | None) -> None:
    assert decoded(processingEntity=value).processing_entity == entity


def test_the_entity_is_no_part_of_an_envelopes_content() -> None:
    one, other = decoded(processingEntity="A"), decoded()
    assert (one.id_hash, one.digest) == (other.id_hash, other.digest)
