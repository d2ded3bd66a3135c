"""Which envelopes a unit has seen, packed so tightly that a value of it costs next to nothing."""

from __future__ import annotations

import msgspec

_WIDTH = 16
"""8 bytes of the hash of the envelope id, then 8 of the digest of its content."""


class EnvelopeIds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The hashed envelope ids of a unit with the digest of each, oldest first. Adding and finding are one copy and one search."""

    packed: bytes = b""

    def __len__(self) -> int:
        return len(self.packed) // _WIDTH

    def find(self, id_hash: bytes) -> bytes | None:
        """The digest that came with this id, if it came."""
        if self.packed.find(id_hash) < 0:
            return None  # As nearly always, for duplicates are few.
        at = self._position(id_hash)
        return None if at is None else self.packed[at + 8 : at + _WIDTH]

    def add(self, id_hash: bytes, digest: bytes, limit: int | None = None) -> EnvelopeIds:
        """With this id as the newest; beyond `limit` ids the oldest are forgotten."""
        packed = self.packed + id_hash + digest
        return EnvelopeIds(packed[-limit * _WIDTH :] if limit else packed)

    def remove(self, id_hash: bytes) -> EnvelopeIds:
        at = self._position(id_hash)
        return self if at is None else EnvelopeIds(self.packed[:at] + self.packed[at + _WIDTH :])

    def split(self) -> list[bytes]:
        """Each hash with its digest, packed as by itself."""
        return [self.packed[at : at + _WIDTH] for at in range(0, len(self.packed), _WIDTH)]

    def _position(self, id_hash: bytes) -> int | None:
        at = self.packed.find(id_hash)
        while at % _WIDTH and at != -1:
            at = self.packed.find(id_hash, at + 1)
        return None if at == -1 else at
