"""The ids of the envelopes that a unit has seen, packed into bytes, so that a copy is cheap."""

from __future__ import annotations

import msgspec

_WIDTH = 16
"""Bytes per envelope: 8 of the hash of its id, then 8 of the digest of its content."""


class EnvelopeIds(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The hashed envelope ids of a unit, each with its digest, oldest first. `add` is one copy, `find` is one search."""

    packed: bytes = b""

    def __len__(self) -> int:
        return len(self.packed) // _WIDTH

    def find(self, id_hash: bytes) -> bytes | None:
        """Return the digest that came with this id, None if the id is unknown."""
        if self.packed.find(id_hash) < 0:
            return None  # The usual case, because duplicates are rare.
        at = self._position(id_hash)
        return None if at is None else self.packed[at + 8 : at + _WIDTH]

    def add(self, id_hash: bytes, digest: bytes, limit: int | None = None) -> EnvelopeIds:
        """Return the ids with this one as the newest. Beyond `limit` ids the oldest are dropped."""
        packed = self.packed + id_hash + digest
        return EnvelopeIds(packed[-limit * _WIDTH :] if limit else packed)

    def remove(self, id_hash: bytes) -> EnvelopeIds:
        at = self._position(id_hash)
        return self if at is None else EnvelopeIds(self.packed[:at] + self.packed[at + _WIDTH :])

    def split(self) -> list[bytes]:
        """Return each id separately: its hash with its digest, packed."""
        return [self.packed[at : at + _WIDTH] for at in range(0, len(self.packed), _WIDTH)]

    def _position(self, id_hash: bytes) -> int | None:
        at = self.packed.find(id_hash)
        while at % _WIDTH and at != -1:
            at = self.packed.find(id_hash, at + 1)
        return None if at == -1 else at
