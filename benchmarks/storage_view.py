"""What it costs to look at a partition with many waiting units without owning it: `python -m benchmarks.storage_view [--help]`.

Each waiting unit has a state of 150 B and one stashed record of 300 B. Measured are the view's whole listing, the same with an
unchanged marker, the changes after one commit of 500 units, and single units, the first one by a view that knows nothing yet. The
ratios compare with the owner's own listing at a takeover (`open` and `waiting`), in the same run. `call` is the time until the
view returns, which with SQLite is one read transaction, `portion` the longest wait for a portion. CPU is that of this process.
"""

import argparse
import logging
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from guardian.gc_tuning import calm_collector
from resequencer.record import Partition
from resequencer.storage_port import Commit, PartitionStore, StashEntry, Storage, UnitChange, WaitKind, Waits
from servers.infinispan import InfinispanServer, InfinispanSettings
from servers.redis import RedisServer
from servers.redis import RedisSettings as RedisServerSettings
from storage.embedded.storage import EmbeddedSettings, EmbeddedStorage
from storage.embedded.view import EmbeddedStorageView
from storage.infinispan.durability import LOCAL_DEFINITION
from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.storage import InfinispanStorage, LayoutSettings, ServerSettings
from storage.infinispan.view import InfinispanStorageView
from storage.redis.settings import RedisLogin, RedisSettings, read_place
from storage.redis.storage import RedisStorage
from storage.redis.view import RedisStorageView
from storage.view_port import StorageView

PARTITION = Partition("IPF_PROCESSING_DATA", 0)
NAMESPACE = "benchmark"
AT_ONCE = 2_000
CHANGED = 500
LOOKED_UP = 200
STATE, RECORD = os.urandom(150), os.urandom(300)
_ON_DISK = LOCAL_DEFINITION["local-cache"]
_CACHE = {"local-cache": {**_ON_DISK, "persistence": {"file-store": {"data": {"sync-writes": False}, "purge": False}}}}


class Subject(NamedTuple):
    """A storage, and views of the same data."""

    storage: Storage
    make_view: Callable[[], StorageView]


class Listing(NamedTuple):
    """A listing and its cost, in seconds. `listed` counts the entries; it is None if nothing changed."""

    marker: str | None
    listed: int | None
    is_whole: bool
    wall: float
    cpu: float
    call: float = 0
    portion: float = 0


@contextmanager
def embedded(directory: Path) -> Iterator[Subject]:
    file = directory / "state.db"
    with closing(EmbeddedStorage(EmbeddedSettings(file), _token)) as storage:
        yield Subject(storage, lambda: EmbeddedStorageView(file))


@contextmanager
def redis(directory: Path) -> Iterator[Subject]:
    server = RedisServer(directory / "redis", RedisServerSettings(append="everysec")).start()
    try:
        settings = RedisSettings(read_place(server.url, RedisLogin()), NAMESPACE, timeout_ms=60_000, wait_replicas=0)
        with closing(RedisStorage(settings, _token)) as storage:
            yield Subject(storage, lambda: RedisStorageView(settings))
    finally:
        server.kill()


@contextmanager
def infinispan(directory: Path) -> Iterator[Subject]:
    server = InfinispanServer(directory / "infinispan", InfinispanSettings(java_options=("-Xmx3g",))).start()
    try:
        server.create_cache("state", _CACHE)
        settings = ServerSettings(server.url, "state", timeout_ms=60_000)
        with closing(InfinispanStorage(LayoutSettings(NAMESPACE), InfinispanRest(settings), _token)) as storage:
            yield Subject(storage, lambda: InfinispanStorageView(InfinispanRest(settings), NAMESPACE))
    finally:
        server.kill()


STORAGES = {"embedded": embedded, "redis": redis, "infinispan": infinispan}


def of_storage(subject: Subject, units: int) -> None:
    store = subject.storage.open(PARTITION)
    _fill(store, units)
    owned = _timed(lambda: len(subject.storage.open(PARTITION).waiting()))
    print(f"  the owner's listing at a takeover   {owned.wall:8.3f} s  CPU {owned.cpu:7.3f} s")
    store = subject.storage.open(PARTITION)
    with closing(subject.make_view()) as view:
        whole = _listed(view, None)
        _print("the whole", whole, owned)
        _print("an unchanged marker", _listed(view, whole.marker), owned)
        _commit(store, [_change(number, secrets.randbelow(10**9)) for number in random.sample(range(units), CHANGED)])
        _print(f"after {CHANGED} changes", _listed(view, whole.marker), owned)
    with closing(subject.make_view()) as view:
        numbers = [random.randrange(units) for _ in range(LOOKED_UP)]
        first = _timed(lambda: view.find_unit(PARTITION, _name(0)))
        others = _timed(lambda: [view.find_unit(PARTITION, _name(number)) for number in numbers])
        print(f"  the first unit of a new view        {first.wall:8.3f} s  CPU {first.cpu:7.3f} s")
        each = f"{others.wall / LOOKED_UP:8.5f} s  CPU {others.cpu / LOOKED_UP:7.5f} s"
        print(f"  each of {LOOKED_UP} units after it         {each}")


def _fill(store: PartitionStore, units: int) -> None:
    began = time.perf_counter()
    for first in range(0, units, AT_ONCE):
        _commit(store, [_change(number, secrets.randbelow(10**9)) for number in range(first, min(first + AT_ONCE, units))])
    print(f"{units:,} waiting units, written in {time.perf_counter() - began:.0f} s", flush=True)


def _change(number: int, ahead_ms: int) -> UnitChange:
    waits = Waits(4_000_000_000_000 + ahead_ms, WaitKind.DEADLINE, 1_700_000_000_000, "sequence:3", "SEQUENCE", 1, 300)
    return UnitChange(_name(number), STATE, waits, (StashEntry(number, RECORD),))


def _name(number: int) -> str:
    return f"5e1f0c52-0a4b-4f2c-9d7e-{number:012}"


def _commit(store: PartitionStore, changes: list[UnitChange]) -> None:
    store.commit(Commit(store.header.commit + 1, secrets.token_hex(8), 0, 0, changes=tuple(changes)))


def _listed(view: StorageView, marker: str | None) -> Listing:
    wall, cpu, portion, listed = time.perf_counter(), time.process_time(), 0.0, 0
    changes = view.find_waiting(PARTITION, marker)
    began = time.perf_counter()
    call = began - wall
    if changes is None:
        return Listing(marker, None, False, call, time.process_time() - cpu, call)
    for units in changes.portions:
        portion = max(portion, time.perf_counter() - began)
        listed += len(units)
        began = time.perf_counter()
    return Listing(changes.marker, listed, changes.is_whole, began - wall, time.process_time() - cpu, call, portion)


def _timed(act: Callable[[], object]) -> Listing:
    wall, cpu = time.perf_counter(), time.process_time()
    act()
    return Listing(None, None, False, time.perf_counter() - wall, time.process_time() - cpu)


def _print(name: str, cost: Listing, owned: Listing) -> None:
    kind = "nothing" if cost.listed is None else f"{cost.listed:,} {'whole' if cost.is_whole else 'changes'}"
    ratios = f"{cost.wall / owned.wall:6.3f} and {cost.cpu / owned.cpu:6.3f} of the owner's"
    waited = f"call {cost.call:.3f} s, portion {cost.portion:.3f} s"
    print(f"  {name:35} {cost.wall:8.3f} s  CPU {cost.cpu:7.3f} s  {ratios}, {waited}, {kind}", flush=True)


def _token() -> str:
    return secrets.token_hex(8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("storages", nargs="*", default=list(STORAGES), help="embedded, redis, infinispan (default: all)")
    parser.add_argument("--units", type=int, default=50_000, help="waiting units (default: 50 000)")
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    calm_collector()
    for name in chosen.storages:
        with TemporaryDirectory(prefix="resequencer-benchmark-", ignore_cleanup_errors=True) as directory:
            print(f"{name}: ", end="", flush=True)
            with STORAGES[name](Path(directory)) as subject:
                of_storage(subject, chosen.units)


if __name__ == "__main__":
    main()
