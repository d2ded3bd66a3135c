"""What the Infinispan storage costs on a real server: `python -m benchmarks.infinispan_storage [--help]`.

Requests are measured by their size, and a poll's 500 units as single entries and as one value. Commits of 500 new units each go
into a cache on disk with every write synced, on disk, and in memory, until every commit also compacts as much as it adds. Then
the number of idle units grows. At each size these are measured: loads of 500 random units, of the newest 500, and of 500 that
do not exist; the search for expired units; and the takeover by a new process, also with many waiting units. The last 15 000
units are in memory, as with 500 units per second and an idle-timeout of 30 s. `client` is the CPU time of this process. Figures
are medians of the rounds, in milliseconds.
"""

import argparse
import logging
import os
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from guardian.gc_tuning import calm_collector
from resequencer.record import Partition
from resequencer.storage_port import Commit, Pending, StashEntry, UnitChange, WaitKind, Waits
from servers.infinispan import InfinispanServer, InfinispanSettings
from storage.infinispan.durability import LOCAL_DEFINITION
from storage.infinispan.partition import InfinispanPartitionStore
from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.storage import InfinispanStorage, LayoutSettings, ServerSettings

UNITS = 500
_COMMITS_PER_LOOK = 20
_IN_MEMORY = 15_000
STATE = os.urandom(200)
WAITS = Waits(4_000_000_000_000, WaitKind.DEADLINE, 1_700_000_000_000, "sequence:3", "SEQUENCE", 1, 1_000)
_ON_DISK = LOCAL_DEFINITION["local-cache"]
CACHES = {
    "synced": _ON_DISK,
    "disk": {**_ON_DISK, "persistence": {"file-store": {"data": {"sync-writes": False}, "purge": False}}},
    "memory": {"encoding": _ON_DISK["encoding"]},
}


class Cost(NamedTuple):
    """The cost of one call, in milliseconds."""

    wall: float
    longest: float
    client: float

    def __str__(self) -> str:
        return f"{self.wall:9.1f} {self.longest:9.1f} {self.client:9.1f}"


def costs(rounds: int, act: Callable[[], object]) -> Cost:
    walls, used = [], time.process_time()
    for _ in range(rounds):
        at = time.perf_counter()
        act()
        walls.append(1_000 * (time.perf_counter() - at))
    return Cost(statistics.median(walls), max(walls), 1_000 * (time.process_time() - used) / rounds)


def show(what: str, cost: Cost) -> None:
    print(f"  {what:44}{cost}", flush=True)


class Filler:
    """Commits new units, and remembers their names by number."""

    def __init__(self, store: InfinispanPartitionStore, size: int) -> None:
        self.store = store
        self.count = 0
        self._size = size

    def commit(self, waits: Waits | None = None) -> None:
        changes = tuple(self._change(self.count + number, waits) for number in range(UNITS))
        self.count += UNITS
        number = self.store.header.commit + 1
        added = tuple(Pending(number * UNITS + each, b"x" * 600) for each in range(UNITS))
        published = number * UNITS - 1
        self.store.commit(Commit(number, secrets.token_hex(8), number, (number + 1) * UNITS, 0, changes, added, published))
        if number % _COMMITS_PER_LOOK == 0:
            self.expire()

    def expire(self) -> None:
        """Search for expired units; none is old enough."""
        self.store.expire(-1, {name(self.count - each) for each in range(1, _IN_MEMORY)})

    def _change(self, number: int, waits: Waits | None) -> UnitChange:
        body = os.urandom(self._size)
        if waits is None:
            return UnitChange(name(number), STATE, None, (), (), body)
        return UnitChange(name(number), STATE, waits, (StashEntry(number, body),))


def name(number: int) -> str:
    return f"payment-{number:09}-of-a-customer"


@contextmanager
def storage_on(server: InfinispanServer, cache: str, namespace: str) -> Iterator[InfinispanStorage]:
    settings = LayoutSettings(namespace)
    rest = InfinispanRest(ServerSettings(server.url, cache, timeout_ms=60_000))
    with closing(InfinispanStorage(settings, rest, lambda: secrets.token_hex(8))) as storage:
        yield storage


def of_requests(server: InfinispanServer, cache: str, rounds: int) -> None:
    print(f"requests, cache {cache}: ms, longest, client")
    with closing(InfinispanRest(ServerSettings(server.url, cache, timeout_ms=60_000))) as rest:
        for size in (1_000, 16_000, 128_000, 1_000_000):
            body = os.urandom(size)
            show(f"PUT {size:9,} B", costs(rounds, lambda body=body: rest.put("one", body)))
            show(f"GET {size:9,} B", costs(rounds, lambda: rest.get("one")))
        rest.create_counter("counted")
        show("GET of a counter", costs(rounds, lambda: rest.find_counter("counted")))
        show("compareAndSet", costs(rounds, lambda: rest.compare_and_set("counted", 0, 0)))
        entry = os.urandom(1_500)
        show("500 units, an entry each", costs(3, lambda: [rest.put(name(number), entry) for number in range(UNITS)]))
        show("500 units, one value", costs(rounds, lambda: rest.put("all", entry * UNITS)))


def of_commits(server: InfinispanServer, cache: str, size: int, rounds: int) -> None:
    with storage_on(server, cache, f"commits-{size}") as storage:
        filler = Filler(storage.open(Partition("T", 0)), size)
        show(f"commit, {size} B, window not full", costs(20, filler.commit))
        while filler.store._contents.archive.head < 20:
            filler.commit()
        show(f"commit, {size} B, and as much compacted", costs(rounds, filler.commit))


def of_idle(server: InfinispanServer, sizes: list[int], waiting: int) -> None:
    partition = Partition("T", 0)
    with storage_on(server, "memory", "idle") as storage:
        filler = Filler(storage.open(partition), 700)
        for size in sizes:
            while filler.count < size:
                filler.commit()
            print(f"beside {filler.count:,} idle units: ms, longest, client")
            of_loads(filler)
            show("commit", costs(20, filler.commit))
            show("look for what is to be forgotten", costs(20, filler.expire))
            show("takeover", costs(3, lambda: taken_over(server, partition)))
            filler.store = storage.open(partition)
        reached = filler.count + waiting
        while filler.count < reached:
            filler.commit(WAITS)
        print(f"beside {reached - waiting:,} idle units and {waiting:,} that wait")
        show("takeover", costs(3, lambda: taken_over(server, partition)))


def of_loads(filler: Filler) -> None:
    load, count, chance = filler.store.load, filler.count, random.Random(1)
    if count:
        show("load of 500, at random", costs(5, lambda: load([name(chance.randrange(count)) for _ in range(UNITS)])))
        show("load of 500, the last", costs(5, lambda: load([name(count - each) for each in range(1, UNITS)])))
    show("load of 500 that do not exist", costs(20, lambda: load([secrets.token_hex(9) for _ in range(UNITS)])))


def taken_over(server: InfinispanServer, partition: Partition) -> None:
    with storage_on(server, "memory", "idle") as storage:
        store = storage.open(partition)
        store.waiting()
        store.pending()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--caches", nargs="*", default=["synced", "disk", "memory"], choices=CACHES)
    parser.add_argument(
        "--idle", type=int, nargs="*", default=[0, 100_000], help="how many units lie idle; 0 1000000 takes a while"
    )
    parser.add_argument("--waiting", type=int, default=100_000)
    arguments = parser.parse_args()
    calm_collector()
    logging.getLogger("resequencer").setLevel(logging.ERROR)
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        server = InfinispanServer(Path(directory), InfinispanSettings(java_options=("-Xmx5g",))).start()
        try:
            for cache, definition in CACHES.items():
                server.create_cache(cache, {"local-cache": definition})
            for cache in arguments.caches:
                of_requests(server, cache, arguments.rounds)
                for size in (1_000, 2_000):
                    of_commits(server, cache, size, arguments.rounds)
            of_idle(server, arguments.idle, arguments.waiting)
        finally:
            server.kill()


if __name__ == "__main__":
    main()
