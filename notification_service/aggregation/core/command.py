"""Commands: what changes a value."""

import msgspec

from guardian.headers import MEMBER
from notification_service.events.identifiers import find_id_flaw
from resequencer.dead_letter import DeadLetterReason
from resequencer.record import Origin, Record


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
    """Return the command of a record: its key is the record's, its member the header `member`. Both are valid ids."""
    if record.defect is not None:
        return CommandRefused(DeadLetterReason.UNDECODABLE, record.defect)
    if record.cut is not None:
        return CommandRefused(DeadLetterReason.TOO_LARGE, f"a command of {record.cut.length} bytes is too large")
    said = next((value for name, value in reversed(record.headers) if name == MEMBER), None)
    try:
        key, member = (record.key or b"").decode(), None if said is None else said.decode()
    except UnicodeDecodeError:
        return CommandRefused(DeadLetterReason.INVALID_ID, "the key or the member is not UTF-8")
    if (flaw := find_id_flaw(key)) is not None:
        return CommandRefused(DeadLetterReason.INVALID_ID, f"the key {flaw}")
    if member is not None and (flaw := find_id_flaw(member)) is not None:
        return CommandRefused(DeadLetterReason.INVALID_ID, f"the member {flaw}")
    return Command(key, member, record.value, record.origin)
