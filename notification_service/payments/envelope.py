"""IPF's data envelopes: the events of a payment, with the objects that they carry (docs/contract.md, section 4)."""

from typing import ClassVar

import msgspec

from resequencer.event import Event

PAIN_001 = "PAIN_001"
PAYMENT_INSTRUCTION = "PAIN_001_PAYMENT_INSTRUCTION"
PAYMENT_TRANSACTION = "PAIN_001_PAYMENT_TRANSACTION"

PAIN_001_PARTS = (PAIN_001, PAYMENT_INSTRUCTION, PAYMENT_TRANSACTION)
"""The MDS object types of a complete pain.001: group header, instruction, transaction."""

MAX_OBJECTS = 1_000
"""The most objects of each kind (MDS, PDS, custom, process objects) in an envelope, and of each kind in a unit's payment data. A
payment has a few."""


def custom_part(key: str) -> str:
    """Return the name of the part that a custom object with this key is."""
    return f"customData:{key}"


def pds_part(name: str) -> str:
    """Return the name of the part that a PDS object with this name is."""
    return f"pdsData:{name}"


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


class DataEnvelope(Event, frozen=True, gc=False):
    """A decoded record of IPF. Bodies are raw JSON in UTF-8; only the parts that a handler reads are decoded.

    `event_id` is the first process object's `uniqueId`, else `flow#sequence`, else `flow#digest`. `digest` is of the flow, the
    sequence and all object bodies. `entity` is that of the processing context if it is a valid id. `parts` names the objects
    except process objects: by their type, `pdsData:` and the name, `customData:` and the key.
    """

    CONFLICT: ClassVar[str] = (
        "envelope id {id!r} was seen before with another flow, sequence or object body; "
        "if both envelopes are intended, requeue this one under an id of its own"
    )

    mds_objects: tuple[MdsObject, ...] = ()
    pds_objects: tuple[PdsObject, ...] = ()
    custom_objects: tuple[CustomObject, ...] = ()
    process_objects: tuple[ProcessObject, ...] = ()

    @property
    def envelope_id(self) -> str:
        """The id of the event, by its name in IPF."""
        return self.event_id

    @property
    def processing_entity(self) -> str | None:
        """The entity of the event, by its name in IPF."""
        return self.entity
