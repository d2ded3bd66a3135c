"""Data envelopes: the decoded content of a record about a payment, and why a record has none."""

from typing import Protocol

import msgspec

from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Record

PAIN_001 = "PAIN_001"
PAYMENT_INSTRUCTION = "PAIN_001_PAYMENT_INSTRUCTION"
PAYMENT_TRANSACTION = "PAIN_001_PAYMENT_TRANSACTION"

PAIN_001_PARTS = (PAIN_001, PAYMENT_INSTRUCTION, PAYMENT_TRANSACTION)
"""The MDS object types of a complete pain.001: group header, instruction, transaction."""

MAX_OBJECTS = 1_000
"""The most objects of each kind (MDS, PDS, custom, process objects) in an envelope, and of each kind in a unit's payment data. A
payment has a few."""


class MdsObject(msgspec.Struct, frozen=True, gc=False):
    """A message data structure object: one of the three parts of a pain.001, or an object of any other type, unchanged."""

    object_type: str
    body: bytes


class PdsObject(msgspec.Struct, frozen=True, gc=False):
    """A processing data structure object, identified by its name."""

    name: str
    object_type: str | None
    body: bytes


class CustomObject(msgspec.Struct, frozen=True, gc=False):
    """A custom object of either schema version: its key and its value as raw JSON."""

    key: str
    body: bytes


class ProcessObject(msgspec.Struct, frozen=True, gc=False):
    """An event of a process flow. Each causes a notification if it has a setting."""

    unique_id: str | None
    object_type: str | None
    event_name: str | None
    process_flow_name: str | None
    reason_code: str | None
    body: bytes


class DataEnvelope(msgspec.Struct, frozen=True, gc=False):
    """A decoded record. Bodies are raw JSON in UTF-8; only the parts that a handler reads are decoded.

    `sequence` is 1 … 2^53-1, or None if the record has none and the strategy needs none. `envelope_id` is the first process
    object's `uniqueId`, else `flow#sequence`, else `flow#digest`. `id_hash` is an 8-byte hash of the envelope id. `digest` is an
    8-byte hash of the flow, the sequence and all object bodies. `processing_entity` is that of the processing context if it is a
    valid id.
    """

    unit: str
    flow: str
    sequence: int | None
    envelope_id: str
    id_hash: bytes
    digest: bytes
    record: Record
    mds_objects: tuple[MdsObject, ...] = ()
    pds_objects: tuple[PdsObject, ...] = ()
    custom_objects: tuple[CustomObject, ...] = ()
    process_objects: tuple[ProcessObject, ...] = ()
    processing_entity: str | None = None

    @property
    def offset(self) -> int:
        """The record's offset: the order of arrival within its partition."""
        return self.record.origin.offset


class Refusal(msgspec.Struct, frozen=True):
    """Why a record is not an envelope. `error` is a short line with the field, its value and the remedy, without payment data."""

    reason: DeadLetterReason
    error: str


class Decoder(Protocol):
    """Makes an envelope of a record. One serves every partition."""

    def decode(self, record: Record) -> DataEnvelope | Refusal:
        """Return the envelope in a record, or why there is none. Raises nothing, whatever the bytes are."""
        ...
