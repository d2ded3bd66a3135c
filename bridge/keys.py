"""Finds the key of a message: the unit of work of the envelope in it. Pure."""

import msgspec

from connectors.line_format import Line
from domain.identifiers import find_id_flaw

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Context(msgspec.Struct, rename="camel", gc=False):
    unit_of_work_id: str | None = None


class _Envelope(msgspec.Struct, rename="camel", gc=False):
    processing_context: _Context | None = None


_decode = msgspec.json.Decoder(_Envelope).decode


def with_key(line: Line) -> Line:
    """Return the line with its unit of work as the key, so that all envelopes of a unit get into one partition.

    What is no envelope keeps its key. It is appended all the same: the resequencer makes a dead letter of it.
    """
    unit = _find_unit(line.value)
    return line if unit is None else Line(line.value, unit.encode(), line.headers)


def _find_unit(value: bytes) -> str | None:
    try:
        context = _decode(value.removeprefix(_BYTE_ORDER_MARK)).processing_context
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    unit = None if context is None else context.unit_of_work_id
    return None if unit is None or find_id_flaw(unit) else unit
