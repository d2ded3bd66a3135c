"""The log of the units that each commit changed, by which a view reads these alone. It is bounded: its oldest entries go."""

import sqlite3
from collections.abc import Sequence

import msgspec

TABLE = """
CREATE TABLE changes (
    partition INTEGER NOT NULL, position INTEGER NOT NULL, marker TEXT NOT NULL, units BLOB NOT NULL
)
"""
INDEX = "CREATE UNIQUE INDEX placed ON changes (partition, position)"

LARGEST_BYTES = 8 * 1024 * 1024
"""The most bytes of entries per partition: some 200 000 changes of units. With more changes, a full read costs the same."""

_ENTRY_BYTES = 64
"""What an entry takes beside its units, about."""

_LAST = "SELECT position FROM changes WHERE partition = ? ORDER BY position DESC LIMIT 1"
_ADD = "INSERT INTO changes (partition, position, marker, units) VALUES (?, ?, ?, ?)"
_DROP = "DELETE FROM changes WHERE partition = ? AND position <= ?"
_LATEST = "SELECT marker, units FROM changes WHERE partition = ? ORDER BY position DESC LIMIT ?"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, ...]).decode


def note_changes(connection: sqlite3.Connection, partition: int, marker: str, units: Sequence[str]) -> None:
    """Add the entry of the commit with this marker, in its transaction."""
    (position,) = connection.execute(_LAST, (partition,)).fetchone() or (0,)
    packed = _encode(units)
    end = position + len(packed) + _ENTRY_BYTES
    connection.execute(_DROP, (partition, end - LARGEST_BYTES))
    connection.execute(_ADD, (partition, end, marker, packed))


def find_changed_units(connection: sqlite3.Connection, partition: int, marker: str, commits: int) -> Sequence[str] | None:
    """Return the units that the last so many commits changed, up to the one that `marker` names, each unit once.

    Returns None if the log does not have them all.
    """
    found = connection.execute(_LATEST, (partition, commits)).fetchall()
    if not found or len(found) < commits or found[0][0] != marker:
        return None
    return list(dict.fromkeys(unit for _, units in found for unit in _decode(units)))
