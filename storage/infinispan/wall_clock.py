"""The start of the caught-up clock for a partition of an older version, which used the wall clock."""

from msgspec.structs import replace

from storage.infinispan.layout.expiry import NEVER, ExpiredUnits, ExpiryWatermark
from storage.infinispan.partition_state import PartitionState
from storage.infinispan.port import Cache
from storage.port import StorageRefused


class WallClock:
    """The watermark of older versions in the cache, one instant for all partitions of a namespace. Read, never written."""

    def __init__(self, cache: Cache, namespace: str, retention_ms: int) -> None:
        self._cache = cache
        self._key = f"{namespace}::forgotten-until"
        self._retention_ms = retention_ms

    def leave(self, contents: PartitionState) -> None:
        """Start the caught-up clock at the instant when the older version last removed expired units.

        So no unit expires at once that had not expired then, and every unit expires a retention after its last change. If that
        instant is unknown, the instant of the last change is used. The cache gets this with the next commit only; until then a
        new owner repeats it.
        """
        until = self._find_watermark()
        begin = contents.last_change if until is None else until + self._retention_ms
        contents.header = replace(contents.header, caught_up_ms=max(begin, contents.header.caught_up_ms))
        contents.forgotten = ExpiredUnits(ExpiryWatermark(NEVER if until is None else until))

    def _find_watermark(self) -> int | None:
        body = self._cache.get(self._key)
        try:
            return None if body is None else int(body)
        except ValueError:
            raise StorageRefused(self._key, "is not an instant; delete it") from None
