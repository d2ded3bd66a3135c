"""The interface to a server, implemented by `rest_client.py`; the values and the counter of one partition."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from threading import RLock
from typing import Any, Protocol

from resequencer.record import Partition
from storage.infinispan.layout.page_table import Page, decode_page
from storage.infinispan.layout.segment import (
    CommitVersion,
    Kind,
    Missing,
    Segment,
    Value,
    cut,
    decode_segment,
    joined,
    token_text,
    version_of,
)


class Cache(Protocol):
    """A cache with counters. Only `compare_and_set` is conditional, as in Infinispan.

    Each method raises:
        StorageUnavailable: The server did not answer; the call may have had its effect.
        StorageRefused: The server refuses the call, and an operator must correct the cause.
    """

    def get(self, key: str) -> bytes | None:
        """Return the value, None if the value or the cache does not exist."""
        ...

    def put(self, key: str, body: bytes) -> None: ...

    def delete(self, key: str) -> None:
        """Delete a value. Succeeds also if it does not exist."""
        ...

    def begin(self, requests: Sequence[Callable[[], object]]) -> Callable[[], None]:
        """Begin these requests, which are made in any order or at the same time.

        The returned call waits until all have ended, and raises the error of one that failed.
        """
        ...

    def find_counter(self, name: str) -> int | None:
        """Return the counter's value, None if there is no such counter."""
        ...

    def create_counter(self, name: str) -> None:
        """Create a persistent counter with value 0. An existing counter stays unchanged."""
        ...

    def compare_and_set(self, name: str, expected: int, update: int) -> bool:
        """Set the counter to `update` if it is `expected`. Return whether this call changed it; False for a missing counter."""
        ...

    def set_up(self) -> None:
        """Check that the cache exists and keeps its data, or create it. Called first, and again at each takeover."""
        ...

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...

    @property
    def may_lag(self) -> bool:
        """Whether a written value may become visible later (an asynchronous cache)."""
        ...


def ended(begun: Sequence[Future[Any]]) -> Sequence[Future[Any]]:
    """Wait for the end of what was begun, and return it. After the first failure, what has not begun yet is cancelled.

    A server that does not answer is waited for once then, and not as often as there are requests.
    """
    _, others = wait([each for each in begun if not each.cancelled()], return_when=FIRST_EXCEPTION)
    wait([each for each in others if not each.cancel()])
    return begun


def segment_name(version: CommitVersion) -> str:
    return f"{Kind.SEGMENT.value}:{token_text(version.token)}:{version.commit}"


def page_name(token: int, number: int) -> str:
    return f"{Kind.PAGE.value}:{token_text(token)}:{number}"


def index_block_name(version: CommitVersion) -> str:
    """The name of the index block that a commit wrote."""
    return f"{Kind.INDEX_BLOCK.value}:{token_text(version.token)}:{version.commit}"


class PageMemory:
    """A cache of the pages that were used last, up to `max_bytes`. Pages never change, so the cache is never stale.

    Used from several threads.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pages: OrderedDict[str, tuple[Page, int]] = OrderedDict()
        self._bytes = 0
        self._lock = RLock()

    def find(self, name: str) -> Page | None:
        with self._lock:
            if (found := self._pages.get(name)) is None:
                return None
            self._pages.move_to_end(name)
            return found[0]

    def keep(self, name: str, page: Page) -> None:
        with self._lock:
            self.drop(name)
            self._pages[name] = (page, page.size)
            self._bytes += page.size
            while self._bytes > self._max_bytes:
                _, (_, size) = self._pages.popitem(last=False)
                self._bytes -= size

    def drop(self, name: str) -> None:
        with self._lock:
            if (known := self._pages.pop(name, None)) is not None:
                self._bytes -= known[1]


class PartitionKeys:
    """Access to a partition's values; names are relative to the partition.

    A value is written once, under a name with its writer's token, and is never changed, only deleted.
    """

    def __init__(self, cache: Cache, namespace: str, partition: Partition, memory: PageMemory) -> None:
        self._cache = cache
        self._memory = memory
        self.name = f"{namespace}:{partition.topic}:{partition.number}"

    def find_version(self) -> CommitVersion | None:
        """Return the version in the counter, None if there is no counter."""
        value = self._cache.find_counter(self.name)
        return None if value is None else version_of(value)

    def create_counter(self) -> None:
        self._cache.create_counter(self.name)

    def move(self, expected: CommitVersion, update: CommitVersion) -> bool:
        """Make a commit valid by a compare-and-set of the counter. Return whether the counter moved."""
        return self._cache.compare_and_set(self.name, expected.packed(), update.packed())

    def read(self, kind: Kind, name: str) -> bytes:
        """Read a value. Raises Missing, StorageRefused, and what the cache raises."""
        return joined(kind, self._key(name), self._get(name), lambda part: self._get(part.removeprefix(self._key(""))))

    def read_segment(self, name: str) -> tuple[Segment, int]:
        """Read a segment and return it with its size in bytes."""
        payload = self.read(Kind.SEGMENT, name)
        return decode_segment(self._key(name), payload), len(payload)

    def read_page(self, name: str) -> Page:
        key = self._key(name)
        if (page := self._memory.find(key)) is None:
            page = decode_page(key, self.read(Kind.PAGE, name))
            self._memory.keep(key, page)
        return page

    def remember_page(self, name: str, page: Page) -> None:
        self._memory.keep(self._key(name), page)

    def write(self, value: Value) -> None:
        for name, body in reversed(cut(value)):
            self._cache.put(self._key(name), body)

    def delete(self, name: str) -> None:
        self._memory.drop(self._key(name))
        self._cache.delete(self._key(name))

    def write_all(self, values: Iterable[Value]) -> None:
        """Write values, in any order. Raises: what the cache raises for one of them."""
        self._cache.begin([partial(self.write, each) for each in values])()

    def begin_to_delete(self, names: Iterable[str]) -> Callable[[], None]:
        """Begin to delete values. The returned call waits for the end, and raises what the cache raises for one of them."""
        return self._cache.begin([partial(self.delete, each) for each in names])

    @property
    def may_lag(self) -> bool:
        return self._cache.may_lag

    def _key(self, name: str) -> str:
        return f"{self.name}:{name}"

    def _get(self, name: str) -> bytes:
        if (body := self._cache.get(self._key(name))) is None:
            raise Missing(self._key(name))
        return body
