"""Digests as texts that fit into an ISO 20022 identification, which has at most 35 characters."""

from hashlib import sha256

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
"""Two characters of base 32 (RFC 4648) for ten bits. The standard library's encoder is slower."""


def short_digest(name: bytes) -> str:
    """Return the first 32 characters of the SHA-256 of a name in base 32: A-Z and 2-7, 160 bits."""
    bits = int.from_bytes(sha256(name).digest()[:20], "big")
    return "".join([_PAIRS[bits >> shift & 1023] for shift in range(150, -1, -10)])
