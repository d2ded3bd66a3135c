"""Values as they lie in the cache: a frame with format version and checksum, cut where a server would refuse the body. Pure."""

from collections.abc import Callable
from enum import Enum
from struct import Struct, error
from typing import NamedTuple
from zlib import crc32

from storage.port import StorageRefused

FORMAT_VERSION = 2
"""Since 2, times are of the partition's caught-up clock. What has format 1 is read, never written."""

PART_BYTES = 4 * 2**20
"""A body is no longer than this; a server takes 10 MB by default."""

_FRAME = Struct(">3scBIQ")
_MAGIC = b"RSQ"
_BEGIN_ANEW = "restore the cache from a copy, or clear it to begin anew: notifications may then repeat"


class Kind(Enum):
    """What a value is; its sign stands in its frame and in its name."""

    SEGMENT = "s"
    PAGE = "p"
    INDEX_BLOCK = "l"


class Value(NamedTuple):
    """What is to be written: a name that was never used before, and the bytes that it will stand for."""

    kind: Kind
    name: str
    payload: bytes


class Missing(Exception):
    """A value that another one names is not there. Never leaves the storage: `storage/infinispan/data_loss.py` explains it."""


def cut(value: Value) -> list[tuple[str, bytes]]:
    """Names and bodies of its parts. The first is named like the whole and is to be written last: it says that all are there."""
    sign = value.kind.value.encode()
    frame = _FRAME.pack(_MAGIC, sign, FORMAT_VERSION, _checksum(value.payload, FORMAT_VERSION), len(value.payload))
    framed = frame + value.payload
    bodies = [framed[begin : begin + PART_BYTES] for begin in range(0, len(framed), PART_BYTES)]
    return list(zip(part_names(value.name, len(bodies)), bodies, strict=True))


def part_names(name: str, parts: int) -> list[str]:
    return [name, *(f"{name}~{number}" for number in range(1, parts))]


def count_parts(payload_bytes: int) -> int:
    return -(-(_FRAME.size + payload_bytes) // PART_BYTES)


def joined(kind: Kind, name: str, first: bytes, read: Callable[[str], bytes]) -> bytes:
    """The payload of a value whose first part is `first`; `read` gets the others.

    Raises:
        StorageRefused: It is damaged, something else, or of a newer format.
        Missing: As `read` raises it.
    """
    try:
        magic, sign, version, checksum, length = _FRAME.unpack_from(first)
    except error:
        raise _damaged(name, "is cut") from None
    if magic != _MAGIC or sign != kind.value.encode():
        raise StorageRefused(name, f"is no {kind.name.lower()} of ours; use a cache of its own for the service")
    if version not in range(1, FORMAT_VERSION + 1):
        text = f"has format {version}, this version of the service knows {FORMAT_VERSION}"
        raise StorageRefused(name, f"{text}; start the newer version that wrote it, or name another cache")
    if len(first) != min(PART_BYTES, _FRAME.size + length):
        raise _damaged(name, "is cut")
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
    """For a payload that is whole and yet not what it should be."""
    return _damaged(name, f"cannot be decoded ({reason})")
