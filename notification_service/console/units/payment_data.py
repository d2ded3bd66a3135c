"""The payment data of a unit: what people with the role `payments` see."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from resequencer.unit import Unit

_LONGEST = 256 * 1024


class ShownBody(NamedTuple):
    """An object's content, or a stashed record's value, as text; `is_cut` if only its beginning is here."""

    title: str
    text: str
    size_bytes: int
    is_cut: bool


def payment_data_of(unit: Unit) -> Iterator[ShownBody]:
    """Yield the objects that the unit has taken over, then the values of its stashed records in order of arrival."""
    for kind, bodies in (("MDS", unit.data.mds), ("PDS", unit.data.pds), ("custom", unit.data.custom)):
        yield from (_shown(f"{kind} object {name}", body) for name, body in bodies)
    entries = [*unit.stash, *unit.queue, *([unit.retry.entry] if unit.retry else [])]
    records = [each.envelope.record for each in entries] + [each.record for each in unit.undecodable]
    for record in sorted(records, key=lambda each: each.origin.offset):
        yield _shown(f"stashed record {record.origin}", record.value)


def _shown(title: str, body: bytes) -> ShownBody:
    try:
        text = (
            msgspec.json.format(body, indent=2).decode() if len(body) <= _LONGEST else body[:_LONGEST].decode("utf-8", "replace")
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[:_LONGEST].decode("utf-8", "backslashreplace")
    return ShownBody(title, text, len(body), len(body) > _LONGEST)
