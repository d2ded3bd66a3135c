"""What the Redis storage costs on a real server: `python -m benchmarks.redis_storage [--help]`.

Measured are commits and loads of 500 units, as many as a poll brings, and the memory of an idle unit beyond its own bytes; also
the expiry of a thousand idle units, the takeover of a partition with many waiting units by a new process, beside none and
beside many idle units, and a takeover that rebuilds the index of idle units. `server` and `client` are CPU times of the server
and of this process, means of the rounds. Of the wall time the best round counts, because other load can only add to it.
"""

import argparse
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

import redis

from guardian.gc_tuning import calm_collector
from notification_service.configuration.configuration import load
from notification_service.wiring.composition import compose
from resequencer.record import Partition
from resequencer.storage_port import Commit, PartitionStore, Pending, StashEntry, UnitChange, WaitKind, Waits
from servers.redis import RedisServer, RedisSettings
from storage.redis import storage as redis_storage
from storage.redis.header import RedisKeys
from storage.redis.settings import RedisLogin, read_place
from storage.redis.settings import RedisSettings as StorageSettings

PARTITION = Partition("IPF_PROCESSING_DATA", 0)
NAMESPACE = "payment-status-notification"
NEVER = 4_000_000_000_000
UNITS = 500
STATE = os.urandom(150)


class Cost(NamedTuple):
    """Milliseconds of one call."""

    wall: float
    client: float
    server: float

    def __str__(self) -> str:
        return f"{self.wall:7.1f} {self.client:7.1f} {self.server:7.1f}"


@contextmanager
def storage_on(server: RedisServer) -> Iterator[redis_storage.RedisStorage]:
    settings = StorageSettings(read_place(server.url, RedisLogin()), NAMESPACE, timeout_ms=5_000, wait_replicas=0)
    with closing(redis_storage.RedisStorage(settings, lambda: secrets.token_hex(8))) as storage:
        yield storage


def costs(client: redis.Redis, rounds: int, act: Callable[[], object]) -> Cost:
    """Measure so many calls."""
    wall, used, used_there = float("inf"), time.process_time(), server_cpu(client)
    for _ in range(rounds):
        at = time.perf_counter()
        act()
        wall = min(wall, time.perf_counter() - at)
    used, used_there = time.process_time() - used, server_cpu(client) - used_there
    return Cost(wall * 1_000, used / rounds * 1_000, used_there / rounds * 1_000)


def server_cpu(client: redis.Redis) -> float:
    spent = client.info("cpu")
    return float(spent["used_cpu_user"] + spent["used_cpu_sys"])


def committed(store: PartitionStore, *changes: UnitChange, added: tuple[Pending, ...] = ()) -> None:
    number = store.header.commit + 1
    store.commit(Commit(number, secrets.token_hex(8), 0, number * UNITS, 0, changes, added, (number - 1) * UNITS))


def of_cycles(client: redis.Redis, store: PartitionStore, size: int, rounds: int) -> None:
    """Measure units with `size` bytes of payment data, new and known ones, each with a notification of the same size."""
    data, units = os.urandom(size), [str(uuid4()) for _ in range(UNITS)]

    def pending() -> tuple[Pending, ...]:
        first = store.header.commit * UNITS
        return tuple(Pending(first + number, data) for number in range(1, UNITS + 1))

    def new() -> None:
        committed(store, *(UnitChange(str(uuid4()), STATE, payment_data=data) for _ in units), added=pending())

    def known() -> None:
        committed(store, *(UnitChange(unit, STATE) for unit in units), added=pending())

    def stashed() -> None:
        offset = store.header.commit
        changes = (UnitChange(unit, STATE, waits(), (StashEntry(offset, data),)) for unit in units)
        committed(store, *changes)

    print(f"  {size:5} B  commit, new units       {costs(client, rounds, new)}")
    committed(store, *(UnitChange(unit, STATE, payment_data=data) for unit in units))
    print(f"           commit, known units     {costs(client, rounds, known)}")
    print(f"           load                    {costs(client, rounds, lambda: store.load(units))}")
    print(f"           commit, one more stashed{costs(client, rounds, stashed)}")


def waits() -> Waits:
    return Waits(NEVER, WaitKind.DEADLINE, 1_700_000_000_000, "sequence:3", "SEQUENCE", 1, 1_000)


def of_memory(client: redis.Redis, store: PartitionStore, size: int) -> None:
    before, data, count = client.info("memory")["used_memory"], os.urandom(size), 20_000
    for _ in range(0, count, UNITS):
        payment_data = data if size else None
        committed(store, *(UnitChange(str(uuid4()), STATE, payment_data=payment_data) for _ in range(UNITS)))
    each = (client.info("memory")["used_memory"] - before) / count
    print(f"  an idle unit of {len(STATE)} + {size} B takes {each:.0f} B: {each - size - len(STATE):.0f} B more than its own")
    print(f"           expire, nothing due     {costs(client, 10, lambda: store.expire(-1, ()))}")
    print(f"           expire, a thousand      {costs(client, 10, lambda: store.expire(0, ()))}")


def of_takeover(server: RedisServer, waiting: int, idle: int) -> None:
    """Measure a worker as the service composes it, on files, from its creation until it holds the partition."""
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory, closing(server.client()) as client:
        client.flushall(asynchronous=True)
        taken_over(server, Path(directory))
        with storage_on(server) as storage:
            store = storage.open(PARTITION)
            fill(store, waiting, lambda unit: UnitChange(unit, STATE, waits(), (StashEntry(1, b"x" * 600),)))
            fill(store, idle, lambda unit: UnitChange(unit, STATE, payment_data=b"x" * 300))
        assert client.dbsize() == waiting + idle + 1 + bool(waiting) + bool(idle) + bool(waiting or idle)
        cost = costs(client, 3, lambda: taken_over(server, Path(directory)))
    print(f"  {waiting:9,} waiting, {idle:9,} idle: {cost.wall:7.0f} {cost.client:7.0f} {cost.server:7.0f}")


def of_rebuild(server: RedisServer, idle: int) -> None:
    """Measure an `open` of a partition whose index of idle units was deleted."""
    with closing(server.client()) as client, storage_on(server) as storage:
        client.flushall(asynchronous=True)
        fill(storage.open(PARTITION), idle, lambda unit: UnitChange(unit, STATE, payment_data=b"x" * 300))
        keys = RedisKeys(NAMESPACE, PARTITION)
        client.delete(keys.idle)
        print(f"  {idle:9,} idle units put into the index: {costs(client, 1, lambda: storage.open(PARTITION))}")
        assert client.zcard(keys.idle) == idle


def fill(store: PartitionStore, count: int, change: Callable[[str], UnitChange]) -> None:
    for at in range(0, count, UNITS):
        committed(store, *(change(str(uuid4())) for _ in range(min(UNITS, count - at))))


def taken_over(server: RedisServer, directory: Path) -> None:
    (directory / "in").mkdir(exist_ok=True)
    (directory / "in" / "partition-0.jsonl").touch()
    keys = {
        "ipf.processing-data.ingress.transport": "file",
        "payment-status-notification.transport": "file",
        "payment-status-notification.run-directory": f'"{directory}"',
        "payment-status-notification.resequencer.storage-type": "redis",
        "payment-status-notification.resequencer.strategy": "SEQUENCE",
        "payment-status-notification.storage.redis.url": f'"{server.url}"',
    }
    configuration = load(overrides=[f"{key} = {value}" for key, value in keys.items()])
    parts = compose(configuration, lambda _: None, lambda: False)
    try:
        while not parts.cycle.partitions.owned:
            parts.cycle.partitions.follow_assignment()
    finally:
        parts.cycle.close()
        for each in parts.servers:
            each.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--append", nargs="*", default=["none", "everysec", "always"], help="when the server syncs its log")
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--idle", type=int, default=100_000)
    arguments = parser.parse_args()
    calm_collector()
    logging.getLogger("resequencer").setLevel(logging.ERROR)
    with TemporaryDirectory(prefix="resequencer-benchmark-") as directory:
        for append in arguments.append:
            with running(RedisServer(Path(directory) / append, RedisSettings(append=append))) as server:
                of_server(server, arguments.rounds, append)
        with running(RedisServer(Path(directory) / "takeover", RedisSettings(append="none"))) as server:
            print("takeover: ms wall, CPU client, CPU server")
            of_takeover(server, 0, 0)
            of_takeover(server, arguments.waiting, 0)
            of_takeover(server, arguments.waiting, arguments.idle)
            of_rebuild(server, arguments.idle)


@contextmanager
def running(server: RedisServer) -> Iterator[RedisServer]:
    server.start()
    try:
        yield server
    finally:
        server.kill()


def of_server(server: RedisServer, rounds: int, append: str) -> None:
    print(f"{UNITS} units a call, appendfsync {append}: ms wall, CPU client, CPU server")
    with closing(server.client()) as client, storage_on(server) as storage:
        for size in (1_000, 2_000, 5_000):
            client.flushall(asynchronous=True)
            of_cycles(client, storage.open(PARTITION), size, rounds)
        if append == "none":
            for size in (0, 1_000, 3_000):
                client.flushall(asynchronous=True)
                of_memory(client, storage.open(PARTITION), size)


if __name__ == "__main__":
    main()
