"""The rules for ids that name units, flows and envelopes (docs/contract.md, section 5)."""

import re
from hashlib import blake2b

MAX_LENGTH = 256
"""In characters, not bytes."""

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_SHOWN = 60


def find_id_flaw(identifier: str) -> str | None:
    """Why this can be no id, None if it can: 1 to 256 characters, none of them a control character (Unicode's Cc)."""
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
    """A value as an error may show it: its beginning, quoted, on one line, what cannot be printed escaped."""
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def hash_id(identifier: str) -> bytes:
    """8 bytes that stand for an id; the same in every process and version, for they are stored."""
    return blake2b(identifier.encode(), digest_size=8).digest()
