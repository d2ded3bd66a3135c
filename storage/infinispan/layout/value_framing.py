"""The form of values in the cache: a frame with format version and checksum, split into parts that a server accepts. Pure."""

from collections.abc import Callable
from enum import Enum
from struct import Struct, error
from typing import NamedTuple
from zlib import crc32

from resequencer.storage_port import StorageRefused

USUAL_FORMAT = 2
"""The oldest format, and that of all values but the segments below."""

WITH_ORDERS = 3
"""The format of a segment whose header knows orders. A version that does not know them would drop what it cannot read."""

WITH_SOURCE_STATE = 4
"""The format of a segment whose header has a state of its source. It is the newest one."""

PART_BYTES = 4 * 2**20
"""The largest body of a part. A server accepts 10 MB by default."""

_FRAME = Struct(">3scBIQ")
_MAGIC = b"RSQ"
_BEGIN_ANEW = "restore the cache from a backup, or clear it to start empty: notifications may then repeat"


class Kind(Enum):
    """The kind of a value. Its sign is in the value's frame and name."""

    SEGMENT = "s"
    PAGE = "p"
    INDEX_BLOCK = "l"


class Value(NamedTuple):
    """A value to write: a name that was never used before, its bytes, and the format that a reader must know."""

    kind: Kind
    name: str
    payload: bytes
    version: int = USUAL_FORMAT


class Missing(Exception):
    """A value to which another value refers is missing. Never leaves the storage; `storage/infinispan/data_loss.py` treats it."""


def cut(value: Value) -> list[tuple[str, bytes]]:
    """Return the names and bodies of the value's parts. The first part has the value's name.

    Write the first part last: its existence shows that the value is complete.
    """
    sign = value.kind.value.encode()
    frame = _FRAME.pack(_MAGIC, sign, value.version, _checksum(value.payload, value.version), len(value.payload))
    framed = frame + value.payload
    bodies = [framed[begin : begin + PART_BYTES] for begin in range(0, len(framed), PART_BYTES)]
    return list(zip(part_names(value.name, len(bodies)), bodies, strict=True))


def part_names(name: str, parts: int) -> list[str]:
    return [name, *(f"{name}~{number}" for number in range(1, parts))]


def count_parts(payload_bytes: int) -> int:
    return -(-(_FRAME.size + payload_bytes) // PART_BYTES)


def joined(kind: Kind, name: str, first: bytes, read: Callable[[str], bytes]) -> bytes:
    """Return the payload of a value whose first part is `first`; `read` returns the other parts.

    Raises:
        StorageRefused: The value is damaged, of another kind or program, or of a newer format.
        Missing: If `read` raises it.
    """
    try:
        magic, sign, version, checksum, length = _FRAME.unpack_from(first)
    except error:
        raise _damaged(name, "is truncated") from None
    if magic != _MAGIC or sign != kind.value.encode():
        raise StorageRefused(name, f"is not a {kind.name.lower()} of the service; use a separate cache for the service")
    if version > WITH_SOURCE_STATE:
        text = f"has format {version}, this version of the service knows {WITH_SOURCE_STATE}"
        raise StorageRefused(name, f"{text}; start the newer version that wrote it, or set another cache")
    if version < USUAL_FORMAT:
        raise _damaged(name, f"has format {version}, which this version of the service does not read")
    if len(first) != min(PART_BYTES, _FRAME.size + length):
        raise _damaged(name, "is truncated")
    payload, others = first[_FRAME.size :], count_parts(length) - 1
    if others:
        payload = b"".join((payload, *(read(f"{name}~{number + 1}") for number in range(others))))
    if _checksum(payload, version) != checksum:
        raise _damaged(name, "is damaged: its checksum is wrong")
    return payload


def _checksum(payload: bytes, version: int) -> int:
    return crc32(payload, version - 1)


def _damaged(name: str, problem: str) -> StorageRefused:
    return StorageRefused(name, f"{problem}; {_BEGIN_ANEW}")


def undecodable(name: str, reason: Exception) -> StorageRefused:
    """Return the error for a complete payload that cannot be decoded."""
    return _damaged(name, f"cannot be decoded ({reason})")
