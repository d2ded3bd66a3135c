"""Until when idle units are forgotten: one instant for all partitions and processes of a namespace, kept in the cache."""

from domain.clock import Instant
from storage.infinispan_cache import Cache
from storage.infinispan_leaf import NEVER
from storage.port import StorageRefused


class Horizon:
    """An idle unit that did not change after it is forgotten, wherever it lies.

    It goes back when the clock of the one who moves it does: what was not given up meanwhile is remembered again.
    """

    def __init__(self, cache: Cache, namespace: str) -> None:
        self._cache = cache
        self._key = f"{namespace}::forgotten-until"
        self._moved: Instant | None = None
        self.last: Instant = NEVER

    def read(self) -> Instant:
        """As it is now; `last` is what was read or moved last."""
        body = self._cache.get(self._key)
        try:
            self.last = NEVER if body is None else int(body)
        except ValueError:
            raise StorageRefused(self._key, "is no instant; delete it") from None
        return self.last

    def move(self, until: Instant) -> None:
        if until != self._moved:
            self._cache.put(self._key, b"%d" % until)
            self._moved = until
        self.last = until
