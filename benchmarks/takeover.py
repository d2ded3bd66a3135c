"""How long a restarted slot needs to take over a partition with many waiting units: `python -m benchmarks.takeover`.

Kafka has one partition and nothing to read. The state is in a Redis that syncs every commit, then in an Infinispan cache on
disk. A new process is measured from its start, imports and group join included, until it holds the partition: its predecessor's
transaction has ended, the position is read, and the waiting units are loaded and armed. The predecessor has stopped in good
order; after a `kill -9` the group first waits for the end of its session (`session.timeout.ms`, 10 s by default), unless
`group.instance.id` is set.

It is measured with an empty storage, with `--waiting` units that each hold an envelope of 1 KB, and with `--idle` units in
addition. The ratio is to the empty storage; goals are seconds. `server B` is what a unit that was added takes of the memory of
the server's process, which for Infinispan is the heap that Java took.
"""

import os
import secrets
import time
from collections.abc import Callable
from functools import partial

from benchmarks._runner import Case, Figures, apart, arguments, resident, runs, show, wanted
from benchmarks._servers import Run, new_run, running
from benchmarks._worker import UNIT_STATE, commit, waiting
from resequencer.gc_tuning import calm_collector
from resequencer.record import Partition
from resequencer.storage_port import UnitChange

PARTITION = Partition("takeover", 0)
GOALS = {"redis": 5, "infinispan": 30}
AT_ONCE = 500
PAYMENT = os.urandom(300)


def held(run: Run, storage: str, began_at: float) -> Figures:
    """Measure in a process of its own."""
    with run.composed(storage) as parts:
        calm_collector()
        while not parts.cycle.partitions.owned:
            parts.cycle.run_once()
        figures = {"s until held": time.time() - began_at, "CPU s": time.process_time()}
        parts.cycle.close()
    return figures


def _fill(run: Run, storage: str, count: int, change: Callable[[str], UnitChange]) -> float:
    """Add so many units; return how many bytes each takes of the server's memory."""
    before = resident(run.servers.processes[storage])
    with run.composed(storage) as parts:
        store = parts.servers.storage.open(PARTITION)
        for at in range(0, count, AT_ONCE):
            commit(parts, store, [change(secrets.token_hex(16)) for _ in range(min(AT_ONCE, count - at))])
    return (resident(run.servers.processes[storage]) - before) / max(1, count)


def _waiting(unit: str) -> UnitChange:
    return waiting(unit, 1_000)


def _idle(unit: str) -> UnitChange:
    return UnitChange(unit, UNIT_STATE, data=PAYMENT)


def measured(run: Run, storage: str, **more: float) -> Figures:
    return apart(held, run, storage, time.time()) | more


def main() -> None:
    chosen = arguments(__doc__, large={"idle": 1_000_000}, waiting=100_000, idle=100_000, rounds=2)
    storages = [each for each in GOALS if wanted(chosen, each)]
    with running("kafka", *storages) as servers:
        servers.make_topics(PARTITION.topic, partitions=1)
        for storage in storages:
            run = new_run(servers, storage, PARTITION.topic)
            measured(run, storage)  # The very first takeover finds no position, and writes one.
            empty = Case(f"{storage}, empty", partial(measured, run, storage))
            cases, found = [empty], runs(chosen, [empty])
            for count, kind, change in ((chosen.waiting, "waiting", _waiting), (chosen.idle, "and idle", _idle)):
                size = _fill(run, storage, count, change)
                name = f"{storage}, {count:,} {kind}"
                more = partial(measured, run, storage, **{"server B": size})
                cases.append(Case(name, more, empty.name, GOALS[storage]))
                found |= runs(chosen, cases[-1:])
            show(cases, found, {"s until held": 1, "CPU s": 1})


if __name__ == "__main__":
    main()
