"""Notifications: the output of the service for each process object that has a setting."""

from hashlib import sha256

import msgspec

from domain.record import Headers, Origin

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
"""Two characters of base 32 (RFC 4648) for ten bits. The standard library's encoder is slower."""

_HEADERS_BYTES = 1_024


class Notification(msgspec.Struct, frozen=True, gc=False):
    """A status report to publish: key (the unit of work), value and headers of one record."""

    notification_id: str
    unit: str
    status: str
    value: bytes
    headers: Headers
    origin: Origin

    @property
    def size(self) -> int:
        """About its size in bytes until it is published, with a fixed size for the headers, which are short."""
        return len(self.value) + _HEADERS_BYTES


def notification_id(unit: str, envelope_id: str, index: int) -> str:
    """Return the id of the notification of an envelope's process object `index` (from 0): 32 characters, A-Z and 2-7.

    The same envelope always yields the same id (docs/contract.md, section 5). It is also the `GrpHdr/MsgId`, which ISO 20022
    limits to 35 characters.
    """
    name = b"\x00".join((unit.encode(), envelope_id.encode(), str(index).encode()))
    bits = int.from_bytes(sha256(name).digest()[:20], "big")
    return "".join([_PAIRS[bits >> shift & 1023] for shift in range(150, -1, -10)])
