"""Commands: what changes a value."""

import msgspec

from domain.dead_letter import DeadLetterReason
from domain.headers import MEMBER, texts_of
from domain.record import Origin, Record

MOST_CHARACTERS = 256
"""The longest key, and the longest member."""

_SEPARATOR = "/"


class Command(msgspec.Struct, frozen=True, gc=False):
    """A command for the value of `key`, or for that of one of its members. `origin` is its place among the commands."""

    key: str
    member: str | None
    body: bytes
    origin: Origin


class CommandRefused(msgspec.Struct, frozen=True):
    """Why a record is no command. It becomes a dead letter."""

    reason: DeadLetterReason
    problem: str


def read_command(record: Record) -> Command | CommandRefused:
    """Return the command of a record: its key is the record's, its member the header `member`."""
    if record.defect is not None:
        return CommandRefused(DeadLetterReason.UNDECODABLE, record.defect)
    if record.cut is not None:
        return CommandRefused(DeadLetterReason.TOO_LARGE, f"a command of {record.cut.length} bytes is too large")
    member = texts_of(record.headers).get(MEMBER)
    try:
        key = (record.key or b"").decode()
    except UnicodeDecodeError:
        return CommandRefused(DeadLetterReason.INVALID_ID, "the key is not UTF-8")
    flaw = _find_flaw("the key", key) or (None if member is None else _find_flaw("the member", member))
    if flaw is None and _SEPARATOR in key:
        flaw = f"the key {key!r:.80} contains {_SEPARATOR!r}, which separates a key from a member"
    if flaw is not None:
        return CommandRefused(DeadLetterReason.INVALID_ID, flaw)
    return Command(key, member, record.value, record.origin)


def _find_flaw(what: str, text: str) -> str | None:
    if not text:
        return f"{what} is empty"
    if len(text) > MOST_CHARACTERS:
        return f"{what} has {len(text)} characters, {MOST_CHARACTERS} are allowed"
    if not text.isprintable():
        return f"{what} {text!r:.80} contains a control character"
    return None
