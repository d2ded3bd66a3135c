"""Values as records of the compacted topic: key `group` or `group/member`, the header `value-due` with the instant of a head.

A `/` in the group's part is written as `%2F`, and a `%` as `%25`. The ids of the payments of messages have neither.
"""

from collections.abc import Sequence
from typing import Any

from guardian.headers import DUE
from guardian.ports import Channel, OutputRecord
from notification_service.aggregation.core.processor import Slot, Stored
from resequencer.clock import Instant

_SEPARATOR = "/"


def value_record(number: int, slot: Slot, stored: Stored | None, partition: int) -> OutputRecord:
    """Return the record of a value; None deletes it."""
    key = slot.key.replace("%", "%25").replace(_SEPARATOR, "%2F") if "%" in slot.key or _SEPARATOR in slot.key else slot.key
    key = f"{key}{_SEPARATOR}{slot.member}" if slot.member else key
    due = stored.due if stored is not None else None
    headers = () if due is None else ((DUE, str(due).encode()),)
    return OutputRecord(number, Channel.VALUES, key.encode(), headers, b"" if stored is None else stored.body, partition)


def read_value(fetched: Any) -> tuple[Slot, Stored | None] | None:
    """Return the value of a record as kafka-python gives it; None if another program wrote it."""
    try:
        key, separator, member = fetched.key.decode().partition(_SEPARATOR)
    except (AttributeError, UnicodeDecodeError):
        return None
    if not key or (separator and not member):
        return None
    key = key.replace("%2F", _SEPARATOR).replace("%25", "%") if "%" in key else key
    return Slot(key, member), Stored(fetched.value, _due_of(fetched.headers)) if fetched.value else None


def _due_of(headers: Sequence[tuple[str, bytes | None]]) -> Instant | None:
    text = next((value for name, value in headers if name == DUE), None)
    return int(text) if text is not None and text.isdigit() else None
