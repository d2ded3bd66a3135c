"""The rules for ids that name units, flows and envelopes (docs/contract.md, section 5)."""

import re
from contextlib import suppress
from hashlib import blake2b

MAX_LENGTH = 256
"""The longest id, in characters (not bytes)."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SHOWN = 60


def find_id_flaw(identifier: str) -> str | None:
    """Return why the text is not a valid id, None if it is: 1 to 256 characters without control characters (Unicode's Cc)."""
    if len(identifier) <= MAX_LENGTH and identifier.isprintable() and identifier:
        return None
    if not identifier:
        return "is empty"
    if len(identifier) > MAX_LENGTH:
        return f"has {len(identifier)} characters ({shown(identifier)}), at most {MAX_LENGTH} are allowed"
    if _CONTROL.search(identifier):
        return f"contains a control character ({shown(identifier)})"
    return None


def shown(value: str | bytes) -> str:
    """Return a value for an error text: its beginning, quoted, on one line, with unprintable characters escaped.

    Bytes that are UTF-8 are shown as their text.
    """
    with suppress(UnicodeDecodeError):
        value = value if isinstance(value, str) else value.decode()
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def hash_id(identifier: str) -> bytes:
    """Return the 8-byte hash of an id. It is stored, so it is the same in every process and version."""
    return blake2b(identifier.encode(), digest_size=8).digest()
