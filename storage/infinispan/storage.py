"""Storage `infinispan`: an Infinispan server or cluster, by its REST interface. A commit is one value and one compare-and-set."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

from resequencer.keys.configuration_key import Key
from resequencer.keys.value_types import Duration, FilePath, SecretText, Text, Url
from resequencer.record import Partition
from resequencer.storage_port import Answer
from storage.infinispan.cache import Cache, PageMemory, PartitionKeys, ended
from storage.infinispan.layout.window import CompactionLimits
from storage.infinispan.partition import InfinispanPartitionStore
from storage.infinispan.partition_state import DataLoss, Opening

_CACHE = Text(r"[A-Za-z0-9._-]{1,100}", "1 to 100 letters, digits, dots, underscores and hyphens")


class ServerSettings(msgspec.Struct, frozen=True):
    """`url` is the server's, without /rest/v2. Without a `username` there is no login. Without a `ca_file` the system's
    authorities are trusted. `timeout_ms` bounds each step of a request: the connection, each part sent, each part received.
    """

    url: Annotated[str, Key(Url(("http", "https")))]
    cache: Annotated[str, Key(_CACHE)]
    username: Annotated[str, Key(Text(r"[^\x00-\x1f:]{0,256}", "a text without a colon"))] = ""
    password: Annotated[str, Key(SecretText())] = ""
    timeout_ms: Annotated[int, Key(Duration("100ms", "10s"))] = 5_000
    ca_file: Annotated[Path | None, Key(FilePath("those that the system trusts"), "tls.ca-file")] = None

    def __post_init__(self) -> None:
        assert self.timeout_ms > 0


class LayoutSettings(msgspec.Struct, frozen=True):
    """The sizes of the layout's parts; see `CompactionLimits`.

    The partitions of a worker share `window_bytes`; each may have `min_window_bytes`. The window is in memory, and a new owner
    reads it. A commit of n bytes moves up to `min_compaction_bytes` + 2 n into pages.
    """

    namespace: str
    window_bytes: int = 32 * 2**20
    min_window_bytes: int = 2 * 2**20
    window_segments: int = 128
    min_compaction_bytes: int = 2**17
    page_memory_bytes: int = 32 * 2**20
    page_bytes: int = 128 * 2**10
    index_block_bytes: int = 256 * 2**10
    few_units: int = 10_000


_AT_ONCE = 8
"""How many calls are made at once: each waits for a few requests, one after the other, and takes little of the processor."""

_STAGGERED = 8
"""The windows of so many partitions are full at different lengths. Else all that are equally busy would compact in one cycle."""


class InfinispanStorage:
    """Opens partitions in a cache, which is set up on first use. Used from one thread, but for what it makes side by side."""

    def __init__(self, settings: LayoutSettings, cache: Cache, random_token: Callable[[], str]) -> None:
        self._settings = settings
        self._cache = cache
        self._random_token = random_token
        self._memory = PageMemory(settings.page_memory_bytes)
        self._stores: dict[Partition, InfinispanPartitionStore] = {}
        self._openings: dict[Partition, Opening] = {}
        self._loss = DataLoss(random_token)
        self._threads = ThreadPoolExecutor(_AT_ONCE, "infinispan")

    @property
    def is_durable(self) -> bool:
        return True

    def connect(self) -> None:
        self._cache.set_up()

    def open(self, partition: Partition) -> InfinispanPartitionStore:
        self._cache.set_up()
        link = PartitionKeys(self._cache, self._settings.namespace, partition, self._memory)
        opening = self._openings.setdefault(partition, Opening(link, self._loss, self._random_token))
        limits = partial(self._limits, len(self._stores) % _STAGGERED)
        store = self._stores[partition] = InfinispanPartitionStore(link, opening.open(), self._loss, limits)
        del self._openings[partition]
        return store

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        if len(calls) < 2:
            return calls
        made = ended([self._threads.submit(each) for each in calls])
        return [call if each.cancelled() else _once(each.result, call) for call, each in zip(calls, made, strict=True)]

    def give_up(self, partition: Partition) -> None:
        self._stores.pop(partition, None)

    def close(self) -> None:
        self._threads.shutdown()
        self._cache.close()

    def _limits(self, fewer: int, commit_bytes: int) -> CompactionLimits:
        settings = self._settings
        return CompactionLimits(
            max(settings.min_window_bytes, settings.window_bytes // max(1, len(self._stores))),
            max(1, settings.window_segments - fewer),
            settings.min_compaction_bytes + 2 * commit_bytes,
            settings.page_bytes,
            settings.index_block_bytes,
            settings.few_units,
        )


def _once(made: Callable[[], Answer], call: Callable[[], Answer]) -> Callable[[], Answer]:
    """Return what gives the outcome of a call that was made; repeated, it makes the call."""
    outcome = [made]
    return lambda: outcome.pop()() if outcome else call()
