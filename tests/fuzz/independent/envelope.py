"""Reads a data envelope as docs/contract.md, section 4 describes it, with the standard library.

Where several things are wrong with a record docs/contract.md leaves open which is told: all of them are found here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from unicodedata import category

from fuzz.independent.json import LONGEST_INTEGER, NotJson, Number, Object, TooDeep, depth_of, has_endless_integer, read_json

from notification_service.events.format import MAX_DEPTH, MAX_SEQUENCE
from notification_service.payments.envelope import MAX_OBJECTS
from resequencer.dead_letter import DeadLetterReason as Reason

_PARTS = {
    "PAIN_001": "PAIN_001",
    "PAIN_001_PAYMENT_INSTRUCTION": "PAIN_001_PAYMENT_INSTRUCTION",
    "PAIN_001_PAYMENT_TRANSACTION": "PAIN_001_PAYMENT_TRANSACTION",
    "PAIN_001_CREDIT_TRANSFER_TRANSACTION": "PAIN_001_PAYMENT_TRANSACTION",
}
_TYPES: dict[str, tuple[str, ...]] = {
    "mdsObjects": ("uniqueId", "objectType", "name"),
    "pdsObjects": ("uniqueId", "objectType", "name"),
    "customObjects": ("objectType", "key"),
    "processObjects": ("uniqueId", "objectType", "name"),
}
_EVENT = ("eventName", "processFlowName", "reasonCode")


class Reading(NamedTuple):
    """The content of the value: an envelope if there are no reasons against it. Bodies are JSON as `read_json` reads it.

    `envelope_id` is None if neither a process object's id nor a sequence gives one.
    """

    reasons: frozenset[Reason]
    unit: str = ""
    flow: str = ""
    sequence: int | None = None
    envelope_id: str | None = None
    mds: tuple[tuple[str, Any], ...] = ()
    pds: tuple[tuple[str, Any], ...] = ()
    custom: tuple[tuple[str, Any], ...] = ()
    process: tuple[tuple[str | None, ...], ...] = ()


def read_envelope(
    value: bytes | None, headers: tuple[tuple[str, bytes], ...], *, needs_sequence: bool, max_bytes: int
) -> Reading:
    """Read a record's value and headers."""
    if value is None:
        return Reading(frozenset({Reason.UNDECODABLE}))
    reasons = set()
    if len(value) > max_bytes:
        reasons.add(Reason.TOO_LARGE)
    if dict(headers).get("schema-version", b"2") not in (b"1", b"2"):
        reasons.add(Reason.UNSUPPORTED_SCHEMA_VERSION)
    try:
        document = read_json(value.removeprefix(b"\xef\xbb\xbf"))
        if _may_be_deep(value) and depth_of(document) > MAX_DEPTH:
            raise TooDeep("deeper than can be read")
        if len(value) > LONGEST_INTEGER and has_endless_integer(document):
            raise NotJson("a longer number than can be read")
        reading = _read(document, needs_sequence=needs_sequence)
    except NotJson:
        # If there are too many objects, the rest is not read.
        too_many = {Reason.TOO_MANY_OBJECTS} if value.count(b"{") > MAX_OBJECTS else set()
        return Reading(frozenset(reasons | too_many | {Reason.UNDECODABLE}))
    return reading._replace(reasons=reading.reasons | reasons)


def _may_be_deep(value: bytes) -> bool:
    return value.count(b"[") + value.count(b"{") > MAX_DEPTH


def _read(document: Any, *, needs_sequence: bool) -> Reading:
    _demand(isinstance(document, Object))
    contexts = document.all_of("processingContext")
    for context in contexts:
        _demand(context is None or isinstance(context, Object))
        _demand_texts(context, ("unitOfWorkId",))
    _demand_texts(document, ("flow",))
    for name, texts in _TYPES.items():
        for objects in document.all_of(name):
            _demand_objects(objects, texts)
    reasons = _reasons(document, needs_sequence=needs_sequence)
    try:
        return _say(document)._replace(reasons=frozenset(reasons))
    except NotJson:
        return Reading(frozenset(reasons | {Reason.UNDECODABLE}))


def _say(document: Object) -> Reading:
    flow = document.get("flow")
    _demand(flow is not None)
    sequence, unique_id = _sequence(document.get("sequence")), _first_id(document)
    documented = unique_id if unique_id is not None else None if sequence is None else f"{flow}#{sequence}"
    return Reading(
        frozenset(),
        _unit(document) or "",
        flow or "",
        sequence,
        documented,
        tuple(map(_mds_object, document.get("mdsObjects") or ())),
        tuple((each.get("name") or "", each.get("object")) for each in document.get("pdsObjects") or ()),
        tuple(map(_custom_object, document.get("customObjects") or ())),
        tuple(map(_process_object, document.get("processObjects") or ())),
    )


def _reasons(document: Object, *, needs_sequence: bool) -> set[Reason]:
    """Return the reasons against a value that has the shape of an envelope."""
    unit, sequence, reasons = _unit(document), document.get("sequence"), set()
    if any(len(objects or ()) > MAX_OBJECTS for name in _TYPES for objects in document.all_of(name)):
        reasons.add(Reason.TOO_MANY_OBJECTS)
    if unit is None:
        reasons.add(Reason.NO_UNIT_OF_WORK)
    if any(each is not None and not _is_id(each) for each in (unit, document.get("flow"), _first_id(document))):
        reasons.add(Reason.INVALID_ID)
    if needs_sequence and _sequence(sequence) is None:
        reasons.add(Reason.NO_SEQUENCE if sequence is None else Reason.INVALID_SEQUENCE)
    return reasons


def _unit(document: Object) -> str | None:
    unit: str | None = (document.get("processingContext") or {}).get("unitOfWorkId")
    return unit


def _first_id(document: Object) -> str | None:
    objects = document.get("processObjects")
    unique_id: str | None = objects[0].get("uniqueId") if objects else None
    return unique_id


def _is_id(text: str) -> bool:
    return 1 <= len(text) <= 256 and not any(category(each) == "Cc" for each in text)


def _sequence(value: Any) -> int | None:
    """Return a whole number as each JSON reader understands it (RFC 8259, section 6): a fraction or exponent makes
    it a double.
    """
    if not isinstance(value, Number):
        return None
    number = int(value.literal) if value.is_integer else float(value.literal)
    return int(number) if 1 <= number <= MAX_SEQUENCE and number == int(number) else None


def _mds_object(each: Object) -> tuple[str, Any]:
    name = each.get("objectType") or ""
    body = each.get("object")
    _demand(name not in _PARTS or isinstance(body, Object))
    return _PARTS.get(name, name), body


def _custom_object(each: Object) -> tuple[str, Any]:
    if each.get("key") is not None or each.get("objectType") != "KEY_VALUE":
        return each.get("key") or "", each.get("value")
    pair = each.get("object")
    _demand(pair is None or isinstance(pair, Object))
    _demand_texts(pair, ("name",))
    return ((pair or {}).get("name") or "", (pair or {}).get("content"))


def _process_object(each: Object) -> tuple[str | None, ...]:
    event, kind = each.get("object"), each.get("objectType")
    if _is_event(event):
        fields = event or {}
    else:
        _demand(kind != "PROCESS_FLOW_EVENT")
        fields = {}
    return each.get("uniqueId"), kind, *(fields.get(name) for name in _EVENT)


def _is_event(event: Any) -> bool:
    if event is None:
        return True
    is_text: Callable[[Any], bool] = lambda each: each is None or isinstance(each, str)  # noqa: E731
    return isinstance(event, Object) and all(is_text(each) for name in _EVENT for each in event.all_of(name))


def _demand_objects(objects: Any, texts: tuple[str, ...]) -> None:
    _demand(objects is None or isinstance(objects, list))
    for each in objects or ():
        _demand(isinstance(each, Object))
        _demand_texts(each, texts)


def _demand_texts(document: Any, names: tuple[str, ...]) -> None:
    for name in names if document is not None else ():
        _demand(all(each is None or isinstance(each, str) for each in document.all_of(name)))


def _demand(is_so: bool) -> None:
    if not is_so:
        raise NotJson("not the shape or types of an envelope")
