"""Infinispan storages that share one namespace, on a cache in memory or on a real server."""

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from uuid import uuid4

from msgspec.structs import replace

from resequencer.storage_port import Commit, PartitionStore, StorageUnavailable
from storage.infinispan.cache import Cache
from storage.infinispan.storage import InfinispanStorage, LayoutSettings
from storage.infinispan.view import InfinispanStorageView

RETENTION_MS = 1_000

SMALL = {
    "window_bytes": 2_000,
    "min_window_bytes": 1_000,
    "window_segments": 3,
    "min_compaction_bytes": 300,
    "page_memory_bytes": 2_000,
    "page_bytes": 400,
    "index_block_bytes": 200,
    "few_units": 4,
}
"""A layout so small that a handful of units needs all parts that a million units would need."""


class InfinispanHarness:
    """Each `make` has a connection of its own, as another process would."""

    def __init__(self, connect: Callable[[], Cache], read_all: Callable[[], object] | None = None, **layout: int) -> None:
        self.connect = connect
        self.read_all = read_all or (lambda: None)
        self.tokens = count()
        self.settings = LayoutSettings(f"test-{uuid4().hex[:12]}", **layout)
        self.made: list[InfinispanStorage] = []
        self.views: list[InfinispanStorageView] = []

    def make(self, **changes: object) -> InfinispanStorage:
        settings = replace(self.settings, **changes)
        storage = InfinispanStorage(settings, self.connect(), lambda: f"{settings.namespace}-{next(self.tokens)}")
        self.made.append(storage)
        return storage

    def make_view(self) -> InfinispanStorageView:
        view = InfinispanStorageView(self.connect(), self.settings.namespace)
        self.views.append(view)
        return view

    def dump(self) -> object:
        """The values and counters of the cache."""
        return self.read_all()

    def commit_unanswered(self, store: PartitionStore, commit: Commit) -> None:
        """Commit so that the counter moves, but lose the answer to the request that moved it."""
        cache = store._link._cache
        moving = cache.compare_and_set

        def unanswered(name: str, expected: int, update: int) -> bool:
            moving(name, expected, update)
            raise StorageUnavailable("the answer was lost")

        cache.compare_and_set = unanswered
        try:
            with suppress(StorageUnavailable):
                store.commit(commit)
        finally:
            cache.compare_and_set = moving

    def close(self) -> None:
        for each in (*self.made, *self.views):
            each.close()
