"""The shape of an envelope on the wire (docs/contract.md, section 4), as far as we read it.

Both schema versions have the same shape.

Unknown fields are skipped, absent and null ones are alike, of a name that comes twice the last counts, and bodies stay raw
JSON. Reading raises `msgspec.DecodeError`, and `RecursionError` for what is nested deeper than the stack allows.
"""

import msgspec

from domain.envelope import MOST_OBJECTS, PAIN_001_PARTS, PAYMENT_TRANSACTION, CustomObject, MdsObject, PdsObject, ProcessObject

_NULL = msgspec.Raw(b"null")
_PAIN_001_PARTS = {part: part for part in PAIN_001_PARTS} | {"PAIN_001_CREDIT_TRANSFER_TRANSACTION": PAYMENT_TRANSACTION}
"""The documented spellings and the one that we keep."""


class WireContext(msgspec.Struct, rename="camel", gc=False):
    """Whose envelope it is. The entity is raw: whatever else stands there is no reason to refuse the envelope."""

    unit_of_work_id: str | None = None
    processing_entity: msgspec.Raw = _NULL


class WireEvent(msgspec.Struct, rename="camel", gc=False):
    """What a process object says in its `object`."""

    event_name: str | None = None
    process_flow_name: str | None = None
    reason_code: str | None = None


class WireKeyValue(msgspec.Struct, gc=False):
    """What a custom object of type KEY_VALUE says in its `object`."""

    name: str | None = None
    content: msgspec.Raw = _NULL


class WireObject(msgspec.Struct, rename="camel", gc=False):
    """An MDS, PDS or process object. What lacks its type or name is kept under the empty one, for which nobody can ask."""

    unique_id: str | None = None
    object_type: str | None = None
    name: str | None = None
    object: msgspec.Raw = _NULL

    def as_mds_object(self) -> MdsObject:
        """The part of a pain.001 must be a JSON object, or it would spoil the unit's payment data for good."""
        body = bytes(self.object)
        part = _PAIN_001_PARTS.get(self.object_type or "")
        if part is None:
            return MdsObject(self.object_type or "", body)
        if body[:1] != b"{":
            raise msgspec.ValidationError(f"Expected `object` - at `$.mdsObjects[...].object` of {part}")
        return MdsObject(part, body)

    def as_pds_object(self) -> PdsObject:
        return PdsObject(self.name or "", self.object_type, bytes(self.object))

    def as_process_object(self) -> ProcessObject:
        """Only a PROCESS_FLOW_EVENT must have our types inside; what another type holds there is its own affair."""
        try:
            event = _read_event(self.object) or WireEvent()
        except msgspec.ValidationError:
            if self.object_type == "PROCESS_FLOW_EVENT":
                raise
            event = WireEvent()
        return ProcessObject(
            self.unique_id, self.object_type, event.event_name, event.process_flow_name, event.reason_code, bytes(self.object)
        )


class WireCustomObject(msgspec.Struct, rename="camel", gc=False):
    """A custom object of either schema: `key` and `value`, or type KEY_VALUE with `name` and `content` in its `object`."""

    object_type: str | None = None
    key: str | None = None
    value: msgspec.Raw = _NULL
    object: msgspec.Raw = _NULL

    def as_custom_object(self) -> CustomObject:
        """What has neither shape is kept under the empty key."""
        if self.key is None and self.object_type == "KEY_VALUE":
            pair = _read_key_value(self.object) or WireKeyValue()
            return CustomObject(pair.name or "", bytes(pair.content))
        return CustomObject(self.key or "", bytes(self.value))


class WireEnvelope(msgspec.Struct, rename="camel", gc=False):
    """The whole. `sequence` is raw, for whether a wrong one matters depends on the strategy."""

    processing_context: WireContext | None = None
    flow: str | None = None
    sequence: msgspec.Raw = _NULL
    mds_objects: list[WireObject] | None = None
    pds_objects: list[WireObject] | None = None
    custom_objects: list[WireCustomObject] | None = None
    process_objects: list[WireObject] | None = None


_Few = msgspec.defstruct(
    "_Few", [(f"_{at}", msgspec.Raw, None) for at in range(MOST_OBJECTS)], array_like=True, forbid_unknown_fields=True, gc=False
)
"""An array of at most so many elements of any kind. One more ends the reading at once: nothing behind it is looked at."""


class _Counted(msgspec.Struct, rename="camel", gc=False):
    """The arrays of an envelope, of which nothing counts but their lengths."""

    mds_objects: _Few | None = None  # type: ignore[valid-type]  # Made above; mypy takes no such struct for a type.
    pds_objects: _Few | None = None  # type: ignore[valid-type]
    custom_objects: _Few | None = None  # type: ignore[valid-type]
    process_objects: _Few | None = None  # type: ignore[valid-type]


def has_too_many_objects(value: bytes) -> bool:
    """Whether an array of the envelope has more than `MOST_OBJECTS` elements; found out without building any of them.

    False where the value is no envelope for another reason: reading it says which.
    """
    if value.count(b"{") <= MOST_OBJECTS:
        return False  # As nearly always: each element is a JSON object.
    try:
        _count(value)
    except msgspec.ValidationError as error:
        return "of at most length" in str(error)
    except (msgspec.DecodeError, RecursionError):
        return False
    return False


_count = msgspec.json.Decoder(_Counted).decode
_read_event = msgspec.json.Decoder(WireEvent | None).decode
_read_key_value = msgspec.json.Decoder(WireKeyValue | None).decode
read_envelope = msgspec.json.Decoder(WireEnvelope).decode
