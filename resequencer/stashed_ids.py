"""The envelope ids in a stash. The cost of one more hardly grows with their number."""

from __future__ import annotations

import msgspec

from resequencer.envelope_ids import EnvelopeIds

_FEW = 128
_BUCKETS = 256


class StashedIds(msgspec.Struct, frozen=True, gc=False):
    """Up to 128 ids are in one bucket, more in 256 buckets by the first byte of their hash. Each method touches one bucket."""

    buckets: tuple[EnvelopeIds, ...] = (EnvelopeIds(),)
    count: int = 0

    def find(self, id_hash: bytes) -> bytes | None:
        """Return the digest of the stashed envelope with this id, None if there is none."""
        return self.buckets[self._at(id_hash)].find(id_hash)

    def add(self, id_hash: bytes, digest: bytes) -> StashedIds:
        if len(self.buckets) == 1:
            if self.count == _FEW:
                return self._spread().add(id_hash, digest)
            return StashedIds((self.buckets[0].add(id_hash, digest),), self.count + 1)
        at = self._at(id_hash)
        return StashedIds(self._with(at, self.buckets[at].add(id_hash, digest)), self.count + 1)

    def remove(self, id_hash: bytes) -> StashedIds:
        at = self._at(id_hash)
        return StashedIds(self._with(at, self.buckets[at].remove(id_hash)), self.count - 1)

    def _at(self, id_hash: bytes) -> int:
        return id_hash[0] if len(self.buckets) > 1 else 0

    def _with(self, at: int, bucket: EnvelopeIds) -> tuple[EnvelopeIds, ...]:
        return (*self.buckets[:at], bucket, *self.buckets[at + 1 :])

    def _spread(self) -> StashedIds:
        spread = [b""] * _BUCKETS
        for each in self.buckets[0].split():
            spread[each[0]] += each
        return StashedIds(tuple(map(EnvelopeIds, spread)), self.count)
