"""What an older version wrote counts on the wall clock: where the caught-up clock of such a partition begins."""

from msgspec.structs import replace

from storage.infinispan.layout.expiry import NEVER, ExpiredUnits, ExpiryWatermark
from storage.infinispan.partition_state import PartitionState
from storage.infinispan.port import Cache
from storage.port import StorageRefused


class WallClock:
    """The watermark that older versions kept in the cache, one instant for all partitions of a namespace. Read, never written."""

    def __init__(self, cache: Cache, namespace: str, retention_ms: int) -> None:
        self._cache = cache
        self._key = f"{namespace}::forgotten-until"
        self._retention_ms = retention_ms

    def leave(self, contents: PartitionState) -> None:
        """Have the caught-up clock begin at the instant at which the older version looked last for what is to be forgotten.

        So nothing is forgotten at once that was not forgotten then, and everything goes a retention after its last change.
        Where that instant is not known, that of the last change takes its place. Until the next commit the cache says
        nothing of it, and the next owner does the same again.
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
            raise StorageRefused(self._key, "is no instant; delete it") from None
