"""Target `decoding`: any record is an envelope or refused, as an independent reader says."""

from random import Random

from fuzz.independent.envelope import Reading, read_envelope
from fuzz.independent.json import read_json
from fuzz.simulated import simulated_lines

from notification_service.connectors.line_format import Line, decode_line
from notification_service.events.format import DecodingSettings, read_body
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.envelope import DataEnvelope
from resequencer.event import Refusal
from resequencer.record import Headers, Origin, Partition, Record

MAX_BYTES = 64 * 1024
ORIGIN = Origin(Partition("in", 0), 7)
HEADERS: tuple[Headers, ...] = (
    (),
    (("schema-version", b"1"),),
    (("schema-version", b"2"),),
    (("schema-version", b"3"),),
    (("schema-version", b"9"), ("schema-version", b"1")),
    (("schema-version", b"\xff\n"), ("other", b"x")),
)
TOKENS = (
    *(b'"processingContext":', b'"unitOfWorkId":', b'"flow":', b'"sequence":', b'"mdsObjects":', b'"pdsObjects":'),
    *(b'"customObjects":', b'"processObjects":', b'"uniqueId":', b'"objectType":', b'"object":', b'"name":', b'"key":'),
    *(b'"value":', b'"content":', b'"KEY_VALUE"', b'"PAIN_001"', b'"PROCESS_FLOW_EVENT"', b'"eventName":', b'"reasonCode":'),
)


def check(data: bytes) -> None:
    """Check the bytes: the first one chooses the strategy's need and the headers, the rest is the value.

    * Nothing is raised, and the same bytes give the same answer.
    * It is refused exactly if the independent reading finds a reason, and with one of those it finds.
    * A refusal is one printable line with a remedy, without the payment's data.
    * An envelope says what the independent reading says, carries each body as a part of the value's own bytes, and every
      body can be read.
    """
    needs_sequence, headers = bool(data[:1] and data[0] & 1), HEADERS[(data[0] >> 1) % len(HEADERS) if data else 0]
    value = data[1:]
    record = Record(ORIGIN, value, headers=headers)
    decode = EnvelopeDecoder(DecodingSettings(needs_sequence, MAX_BYTES)).decode
    outcome, reading = decode(record), read_envelope(value, headers, needs_sequence=needs_sequence, max_bytes=MAX_BYTES)
    assert outcome == decode(record)
    if isinstance(outcome, Refusal):
        assert outcome.reason in reading.reasons, (outcome, reading)
        check_refusal(outcome.error)
    else:
        assert not reading.reasons, (outcome, reading)
        _check_envelope(outcome, reading, value)


def check_refusal(error: str) -> None:
    """Check that the refusal fits a log line and says what to do."""
    assert error.isprintable(), error
    assert len(error) < 400, error
    assert "; " in error or error == "", error


def _check_envelope(envelope: DataEnvelope, reading: Reading, value: bytes) -> None:
    identity = (envelope.unit, envelope.flow, envelope.sequence)
    assert identity == (reading.unit, reading.flow, reading.sequence)
    if reading.envelope_id is None:
        flow, _, digest = envelope.envelope_id.rpartition("#")
        assert (flow, bytes.fromhex(digest)) == (reading.flow, envelope.digest)
    else:
        assert envelope.envelope_id == reading.envelope_id
    _check_bodies([(each.object_type, each.body) for each in envelope.mds_objects], reading.mds, value)
    _check_bodies([(each.name, each.body) for each in envelope.pds_objects], reading.pds, value)
    _check_bodies([(each.key, each.body) for each in envelope.custom_objects], reading.custom, value)
    objects = [(e.unique_id, e.object_type, e.event_name, e.process_flow_name, e.reason_code) for e in envelope.process_objects]
    assert tuple(objects) == reading.process
    for each in envelope.process_objects:
        read_body(each.body)


def _check_bodies(ours: list[tuple[str, bytes]], read: tuple[tuple[str, object], ...], value: bytes) -> None:
    assert [(name, read_json(body)) for name, body in ours] == list(read)
    for _, body in ours:
        read_body(body)
        assert body == b"null" or body in value


def seeds() -> list[bytes]:
    """Yield the values of a simulation's lines, envelopes and garbage, with each choice of the first byte."""
    rng = Random(1)
    values = [read.value for line in simulated_lines() if isinstance(read := decode_line(line), Line)]
    return [bytes([rng.randrange(2 * len(HEADERS))]) + value for value in values]
