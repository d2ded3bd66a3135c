"""The shape of an envelope on the wire (docs/contract.md, section 4), as far as the service reads it.

Both schema versions have the same shape. Unknown fields are skipped, null is the same as absent, of a repeated name the last one
counts, and bodies stay raw JSON. Reading raises `msgspec.DecodeError`, and `RecursionError` for too deep nesting.
"""

import msgspec

from notification_service.payments.envelope import (
    MAX_OBJECTS,
    PAIN_001_PARTS,
    PAYMENT_TRANSACTION,
    CustomObject,
    MdsObject,
    PdsObject,
    ProcessObject,
)

_NULL = msgspec.Raw(b"null")
_PAIN_001_PARTS = {part: part for part in PAIN_001_PARTS} | {"PAIN_001_CREDIT_TRANSFER_TRANSACTION": PAYMENT_TRANSACTION}
"""Maps the documented spellings of a part's type to the spelling that the service uses."""


class WireContext(msgspec.Struct, rename="camel", gc=False):
    """The processing context of an envelope. The entity is raw, because a wrong value must not refuse the envelope."""

    unit_of_work_id: str | None = None
    processing_entity: msgspec.Raw = _NULL


class WireEvent(msgspec.Struct, rename="camel", gc=False):
    """The `object` of a process object."""

    event_name: str | None = None
    process_flow_name: str | None = None
    reason_code: str | None = None


class WireKeyValue(msgspec.Struct, gc=False):
    """The `object` of a custom object of type KEY_VALUE."""

    name: str | None = None
    content: msgspec.Raw = _NULL


class WireObject(msgspec.Struct, rename="camel", gc=False):
    """An MDS, PDS or process object. Without a type or name it is stored under an empty one, which cannot be requested."""

    unique_id: str | None = None
    object_type: str | None = None
    name: str | None = None
    object: msgspec.Raw = _NULL

    def as_mds_object(self) -> MdsObject:
        """Return the MDS object. A part of a pain.001 must be a JSON object, or the unit's payment data would stay unusable."""
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
        """Return the process object. Only the fields of a PROCESS_FLOW_EVENT must have the right types."""
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
        """Return the custom object. An object of neither form is stored under the empty key."""
        if self.key is None and self.object_type == "KEY_VALUE":
            pair = _read_key_value(self.object) or WireKeyValue()
            return CustomObject(pair.name or "", bytes(pair.content))
        return CustomObject(self.key or "", bytes(self.value))


class WireEnvelope(msgspec.Struct, rename="camel", gc=False):
    """A whole envelope. `sequence` is raw, because it depends on the strategy whether a wrong value matters."""

    processing_context: WireContext | None = None
    flow: str | None = None
    sequence: msgspec.Raw = _NULL
    mds_objects: list[WireObject] | None = None
    pds_objects: list[WireObject] | None = None
    custom_objects: list[WireCustomObject] | None = None
    process_objects: list[WireObject] | None = None


_Few = msgspec.defstruct(
    "_Few", [(f"_{at}", msgspec.Raw, None) for at in range(MAX_OBJECTS)], array_like=True, forbid_unknown_fields=True, gc=False
)
"""An array of at most `MAX_OBJECTS` elements of any kind. Decoding ends at the first element beyond that."""


class _Counted(msgspec.Struct, rename="camel", gc=False):
    """The arrays of an envelope, to check only their lengths."""

    mds_objects: _Few | None = None  # type: ignore[valid-type]  # mypy does not accept the result of `defstruct` as a type.
    pds_objects: _Few | None = None  # type: ignore[valid-type]
    custom_objects: _Few | None = None  # type: ignore[valid-type]
    process_objects: _Few | None = None  # type: ignore[valid-type]


def has_too_many_objects(value: bytes) -> bool:
    """Whether an array of the envelope has more than `MAX_OBJECTS` elements. Builds none of the elements.

    False if the value is not an envelope for another reason; decoding it then reports the reason.
    """
    if value.count(b"{") <= MAX_OBJECTS:
        return False  # The usual case. Each element is a JSON object.
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
