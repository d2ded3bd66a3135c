"""Short digests: names made from other names, readable and unique."""

from hashlib import sha256

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
