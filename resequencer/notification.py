"""What is sent of an envelope: notifications, and facts, which are counted by groups."""

from hashlib import sha256

import msgspec
from msgspec import UNSET, UnsetType

from resequencer.clock import Instant
from resequencer.record import Headers, Origin, size_of_headers

_HEADERS_BYTES = 1_024


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A record to publish.

    `status` is what it is counted under. `key` UNSET is the unit of work; headers beside another key may be long. `is_object` is
    set if the service itself encoded the value as a JSON object on one line. `prefix` is that of our headers in it, which is not
    empty if the record's own headers leave, too: they may have the same names. `timestamp` is that of a record that leaves as it
    came, if it has one. `is_possible_duplicate` is set if its record was requeued from a dead letter with that mark.
    """

    notification_id: str
    unit: str
    status: str
    value: bytes | None
    headers: Headers
    origin: Origin
    is_object: bool = False
    key: bytes | UnsetType | None = UNSET
    prefix: str = ""
    timestamp: Instant | None = None
    is_possible_duplicate: bool = False

    @property
    def size(self) -> int:
        """About its size in bytes until it is published, with a fixed size for our own headers, which are short."""
        length = len(self.value or b"") + _HEADERS_BYTES
        return length if self.key is UNSET else length + len(self.key or b"") + size_of_headers(self.headers)


_LETTERS = bytes.maketrans(bytes(range(32)), b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
"""The letters of base 32 (RFC 4648). The encoder of the standard library takes twice as long as this module."""


def _halvings() -> list[tuple[int, int, int]]:
    """Return the steps that spread 160 bits evenly over 32 bytes, five bits in each.

    Each step moves the upper half of every group of bits away from its lower half, into the middle of the room that the group
    has: first one group of 160 bits in 256, at last 16 groups of 10 bits in 16. A step is a mask of the upper halves, how far
    they move, and a mask of the lower halves.
    """
    steps = []
    bits, room = 160, 256
    while bits > 5:
        lower = sum(((1 << bits // 2) - 1) << at for at in range(0, 256, room))
        steps.append((lower << bits // 2, (room - bits) // 2, lower))
        bits, room = bits // 2, room // 2
    return steps


(_U1, _D1, _L1), (_U2, _D2, _L2), (_U3, _D3, _L3), (_U4, _D4, _L4), (_U5, _D5, _L5) = _halvings()


def short_digest(name: bytes) -> str:
    """Return the first 32 characters of the SHA-256 of a name in base 32: A-Z and 2-7, 160 bits."""
    bits = int.from_bytes(sha256(name).digest()[:20], "big")
    bits = (bits & _U1) << _D1 | bits & _L1
    bits = (bits & _U2) << _D2 | bits & _L2
    bits = (bits & _U3) << _D3 | bits & _L3
    bits = (bits & _U4) << _D4 | bits & _L4
    bits = (bits & _U5) << _D5 | bits & _L5
    return bits.to_bytes(32, "big").translate(_LETTERS).decode()


def notification_id(unit: str, event_id: str, index: int) -> str:
    """Return the id of notification `index` (from 0) of an envelope: 32 characters, A-Z and 2-7.

    The same envelope always yields the same id (docs/contract.md, section 5). It is also the `GrpHdr/MsgId`, which ISO 20022
    limits to 35 characters.
    """
    return short_digest(f"{unit}\0{event_id}\0{index}".encode())


def group_report_id(group: str, number: int) -> str:
    """Return the id of the report `number` (from 1) on a group: also 32 characters and the `GrpHdr/MsgId`, always the same."""
    return short_digest(f"{group}\0{number}".encode())


_FACT_HEADERS_BYTES = 512


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One record of the topic of facts. `key` is the group, or the unit of work if that has no group."""

    key: str
    value: bytes
    headers: Headers
    origin: Origin
    is_possible_duplicate: bool = False

    @property
    def size(self) -> int:
        """About its size in bytes until it is published, with a fixed size for the headers, which are short."""
        return len(self.value) + _FACT_HEADERS_BYTES
