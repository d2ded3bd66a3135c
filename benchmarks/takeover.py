"""How long a restarted slot needs to take over a partition with many waiting units: `python -m benchmarks.takeover`.

Kafka has one partition and nothing to read. The state is in a Redis that syncs every commit, then in an Infinispan cache on
disk. A new process is measured from its start, imports and group join included, until it holds the partition: its predecessor's
transaction has ended, the position is read, and the waiting units are loaded and armed. The predecessor left the group; after a
`kill -9` the group first waits for the end of its session (`session.timeout.ms`, 10 s by default), unless `group.instance.id`
is set.

It is measured with an empty storage, with `--waiting` units that each hold an envelope of 1 KB, and with `--idle` units in
addition. The best of `--rounds` counts.
"""

import argparse
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import msgspec

from benchmarks._servers import Addresses, SimulatedRun, configured, make_topics, new_run, running
from guardian.gc_tuning import calm_collector
from notification_service.wiring.composition import Parts, compose
from resequencer.record import Partition
from resequencer.storage_port import Commit, StashEntry, UnitChange, WaitKind, Waits

PARTITION = Partition("takeover", 0)
GOALS = {"redis": 5, "infinispan": 30}
"""In seconds."""

WAITS_MS = 3_600_000
"""As the configured stash-timeout: a deadline further away would be one of a clock that was wrong, which the worker corrects."""
AT_ONCE = 500
STATE, RECORD, PAYMENT = os.urandom(150), os.urandom(1_000), os.urandom(300)


class Cost(NamedTuple):
    """Seconds: `wall` from the start of the process, `cpu` of the process."""

    wall: float
    cpu: float


class Job(msgspec.Struct, frozen=True):
    servers: Addresses
    run: SimulatedRun
    storage: str
    began_at: float = 0


def held(job: Job) -> Cost:
    """Measure in a process of its own."""
    with _composed(job) as parts:
        calm_collector()
        while not parts.cycle.partitions.owned:
            parts.cycle.run_once()
        cost = Cost(time.time() - job.began_at, time.process_time())
        parts.cycle.close()
    return cost


def measured(job: Job) -> Cost:
    with get_context("spawn").Pool(1) as processes:
        return processes.apply(held, (msgspec.structs.replace(job, began_at=time.time()),))


def of_storage(servers: Addresses, storage: str, waiting: int, idle: int, rounds: int) -> None:
    job = Job(servers, new_run(servers, f"takeover-{storage}"), storage)
    measured(job)  # The very first takeover finds no position, and writes one.
    of_waiting(job, 0, 0, rounds)
    _fill(job, waiting, lambda unit, now: UnitChange(unit, STATE, _waits(now), (StashEntry(0, RECORD),)))
    of_waiting(job, waiting, 0, rounds)
    _fill(job, idle, lambda unit, _: UnitChange(unit, STATE, payment_data=PAYMENT))
    of_waiting(job, waiting, idle, rounds)


def of_waiting(job: Job, waiting: int, idle: int, rounds: int) -> None:
    costs = [measured(job) for _ in range(rounds)]
    wall, cpu = min(each.wall for each in costs), min(each.cpu for each in costs)
    print(f"{job.storage:12}{waiting:>10,}{idle:>11,}{wall:>9.1f}{GOALS[job.storage]:>6}{cpu:>9.1f}", flush=True)


def _fill(job: Job, count: int, change: Callable[[str, int], UnitChange]) -> None:
    with _composed(job) as parts:
        store = parts.servers.storage.open(PARTITION)
        for at in range(0, count, AT_ONCE):
            now = time.time_ns() // 1_000_000
            changes = tuple(change(secrets.token_hex(16), now) for _ in range(min(AT_ONCE, count - at)))
            commit = Commit(store.header.commit + 1, secrets.token_hex(8), 0, 0, 0, changes, (), 0)
            parts.retry.until_answered("storage", partial(store.commit, commit))


def _waits(now: int) -> Waits:
    return Waits(now + WAITS_MS, WaitKind.DEADLINE, now, "sequence:3", "SEQUENCE", 1, len(RECORD))


@contextmanager
def _composed(job: Job) -> Iterator[Parts]:
    logging.getLogger("resequencer").setLevel(logging.ERROR)
    parts = compose(configured(job.servers, job.run, PARTITION.topic, job.storage), _wait, lambda: False)
    try:
        yield parts
    finally:
        for each in parts.servers:
            each.close()


def _wait(milliseconds: int) -> None:
    time.sleep(milliseconds / 1_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--waiting", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--idle", type=int, default=100_000, help="default: %(default)s")
    parser.add_argument("--large", action="store_const", const=1_000_000, dest="idle", help="1 000 000 idle units")
    parser.add_argument("--rounds", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--storages", nargs="*", default=list(GOALS), choices=GOALS)
    chosen = parser.parse_args()
    with running() as servers:
        make_topics(servers, PARTITION.topic, partitions=1)
        print(f"{'seconds':12}{'waiting':>10}{'idle':>11}{'held':>9}{'goal':>6}{'CPU':>9}", flush=True)
        for storage in chosen.storages:
            of_storage(servers, storage, chosen.waiting, chosen.idle, chosen.rounds)


if __name__ == "__main__":
    main()
