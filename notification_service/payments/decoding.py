"""Decodes bytes to a data envelope, or returns the reason why not (docs/contract.md, section 4; docs/design.md, section 3)."""

from functools import lru_cache
from hashlib import blake2b

import msgspec

from guardian.headers import SCHEMA_VERSION
from notification_service.events.format import (
    BYTE_ORDER_MARK,
    RecordDecoder,
    Refused,
    checked_id,
    find_encoding_flaw,
    find_reading_flaw,
)
from notification_service.events.identifiers import MAX_LENGTH, find_id_flaw, hash_id, shown
from notification_service.payments.envelope import (
    MAX_OBJECTS,
    DataEnvelope,
    ProcessObject,
    custom_part,
    pds_part,
)
from notification_service.payments.wire import WireEnvelope, has_too_many_objects, read_envelope
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Record

_LONGEST_RAW_ID = 12 * MAX_LENGTH + 2
"""The longest id in JSON, in bytes: a character takes at most 12 (two UTF-16 escapes), the quotes take 2."""

_OBJECT_BYTES = 320
"""Memory of an object beside its body, as measured: a process object with all fields takes 340 bytes, an empty object 110."""

_pack = msgspec.msgpack.Encoder().encode
_read_text = msgspec.json.Decoder(str).decode


class EnvelopeDecoder(RecordDecoder[DataEnvelope]):
    """Decodes records of IPF to data envelopes."""

    a_record, records, needs_value = "an envelope", "envelopes", True

    def _event(self, record: Record) -> DataEnvelope:
        """Return the envelope in a record.

        A byte order mark before the JSON is accepted. Without process object and sequence there is no documented envelope id.
        Then the id is `flow#digest`, so that only an identical envelope is a duplicate. Bodies are compared as bytes: the same
        data in another notation has another digest.
        """
        _check_schema_version(record)
        wire = _read((record.value or b"").removeprefix(BYTE_ORDER_MARK))
        unit = _unit(wire)
        flow = _flow(wire)
        sequence = self._sequence(bytes(wire.sequence))
        mds = tuple([each.as_mds_object() for each in wire.mds_objects]) if wire.mds_objects else ()
        pds = tuple([each.as_pds_object() for each in wire.pds_objects]) if wire.pds_objects else ()
        custom = tuple([each.as_custom_object() for each in wire.custom_objects]) if wire.custom_objects else ()
        process = tuple([each.as_process_object() for each in wire.process_objects]) if wire.process_objects else ()
        # MessagePack frames every part, so that different envelopes have different bytes. Digests are stored: a test pins them.
        framed = _pack((flow, sequence, mds, pds, custom, [(each.object_type, each.body) for each in process]))
        digest = blake2b(framed, digest_size=8).digest()
        envelope_id = _find_documented_id(process) or f"{flow}#{digest.hex() if sequence is None else sequence}"
        entity = None if wire.processing_context is None else _find_entity(bytes(wire.processing_context.processing_entity))
        id_hash = hash_id(envelope_id)
        parts = tuple([each.object_type for each in mds]) if mds else ()
        if pds or custom:
            parts += (*[pds_part(each.name) for each in pds], *[custom_part(each.key) for each in custom])
        weight = _OBJECT_BYTES * (len(parts) + len(process))
        return DataEnvelope(
            unit,
            flow,
            sequence,
            envelope_id,
            id_hash,
            digest,
            record,
            parts,
            weight,
            entity,
            None,
            None,
            mds,
            pds,
            custom,
            process,
        )


def _check_schema_version(record: Record) -> None:
    """Check the schema version. Of several such headers the last one counts, as in Kafka's own clients."""
    version = b"2"
    for name, value in record.headers:
        if name == SCHEMA_VERSION:
            version = value
    if version not in (b"1", b"2"):
        raise Refused(DeadLetterReason.UNSUPPORTED_SCHEMA_VERSION, f"{SCHEMA_VERSION} is {shown(version)}; send 1 or 2")


def _read(value: bytes) -> WireEnvelope:
    flaw = find_encoding_flaw(value)
    if flaw is not None:
        raise msgspec.DecodeError(flaw)
    if has_too_many_objects(value):
        error = f"the envelope has more than {MAX_OBJECTS} objects of a kind; send them in several envelopes"
        raise Refused(DeadLetterReason.TOO_MANY_OBJECTS, error)
    wire = read_envelope(value)
    flaw = find_reading_flaw(value)
    if flaw is not None:
        raise msgspec.DecodeError(flaw)
    return wire


def _unit(wire: WireEnvelope) -> str:
    context = wire.processing_context
    unit = None if context is None else context.unit_of_work_id
    if unit is None:
        raise Refused(DeadLetterReason.NO_UNIT_OF_WORK, "processingContext.unitOfWorkId is missing; set it to the unit of work")
    return checked_id("processingContext.unitOfWorkId", unit)


def _find_entity(raw: bytes) -> str | None:
    """Return the processing entity, None if it is not a text or not a valid id. A too long value is not decoded."""
    return _find_short_entity(raw) if len(raw) <= _LONGEST_RAW_ID else None


@lru_cache(256)
def _find_short_entity(raw: bytes) -> str | None:
    """Decode a processing entity. Cached, because there are few, and nearly every envelope has one."""
    try:
        entity = _read_text(raw)
    except msgspec.DecodeError:
        return None
    return None if find_id_flaw(entity) else entity


def _flow(wire: WireEnvelope) -> str:
    if wire.flow is None:
        raise msgspec.ValidationError("Object missing required field `flow`")
    return checked_id("flow", wire.flow)


def _find_documented_id(process_objects: tuple[ProcessObject, ...]) -> str | None:
    unique_id = process_objects[0].unique_id if process_objects else None
    return None if unique_id is None else checked_id("processObjects[0].uniqueId", unique_id)
