"""Envelopes per second on real servers, compared with a bare loop from Kafka to Kafka: `python -m benchmarks.servers_throughput`.

The same envelopes (about 1.1 KB each, out of order within 2 000 places, 2 % of them twice, in a topic of four partitions) go
through

    bare loop    poll, one transaction per poll, nothing in between (`_kafka_loop.py`); decodes nothing, writes as much
    none         the whole worker, strategy SEQUENCE, state in the process
    redis        the same with state in a Redis that syncs every commit
    infinispan   the same with state in an Infinispan cache on disk, synced with every commit

each in a process of its own, with the same client settings and the same `--batch-size`. They take turns, `--rounds` times.
Ratios are to the bare loop, of the fastest rounds and of the CPU. The time runs from when the partitions are held until the
last transaction is committed. `worker` is the CPU time of that process with its client's threads and system calls; `servers` is
that of the servers.
"""

import argparse
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from multiprocessing import get_context

import msgspec

from benchmarks._bare_loop import bare_loop, checked
from benchmarks._kafka_loop import KafkaLoop
from benchmarks._servers import PARTITIONS, Addresses, SimulatedRun, configured, fill, new_run, running
from benchmarks._worker import PARTITION, Spent, Stopwatch
from benchmarks._workload import made
from guardian.gc_tuning import calm_collector
from notification_service.configuration.transports import kafka_settings
from notification_service.wiring.composition import compose

INPUT = "envelopes"
GOALS = {"none": 0.7, "redis": 0.5, "infinispan": 0.3}
"""Shares of the bare loop's envelopes per second."""


class Job(msgspec.Struct, frozen=True):
    """One measurement. `notifications` is the expected number; `sample` is a typical output line."""

    servers: Addresses
    run: SimulatedRun
    envelopes: int
    notifications: int
    sample: bytes
    batch_size: int = 500
    topic: str = INPUT


class Measured(msgspec.Struct, frozen=True):
    """`servers` are CPU seconds by name."""

    spent: Spent
    servers: dict[str, float]


def bare(job: Job) -> Spent:
    notification = msgspec.json.decode(job.sample)
    headers = [(name, value.encode()) for name, value in notification["headers"].items()]
    settings = kafka_settings(configured(job.servers, job.run, job.topic, "none"))
    with closing(KafkaLoop(settings, headers, msgspec.json.encode(notification["value"]))) as loop:
        loop.join(PARTITIONS)
        job.run.note_ready()
        watch = Stopwatch()
        loop.run(job.envelopes, job.batch_size)
        return watch.spent()


def worker(storage: str, job: Job) -> Spent:
    logging.getLogger("resequencer").setLevel(logging.ERROR)
    batch_size = f"ipf.processing-data.ingress.batch-size = {job.batch_size}"
    parts = compose(configured(job.servers, job.run, job.topic, storage, batch_size), _wait, lambda: False)
    cycle = parts.cycle
    calm_collector()
    while len(cycle.partitions.owned) < PARTITIONS:
        cycle.run_once()
    job.run.note_ready()
    began_with, watch = cycle.metrics.counts["records"], Stopwatch()
    while cycle.metrics.counts["records"] < job.envelopes:
        cycle.run_once()
    spent = watch.spent()
    cycle.close()
    for each in parts.servers:
        each.close()
    left = cycle.metrics.notifications.total()
    assert left == job.notifications, f"{left} notifications of {job.notifications} left"
    share = 1 - began_with / job.envelopes
    return Spent(spent.wall / share, spent.cpu / share)


MEASURED: dict[str, Callable[[Job], Spent]] = {
    "bare loop": bare,
    "none": partial(worker, "none"),
    "redis": partial(worker, "redis"),
    "infinispan": partial(worker, "infinispan"),
}


def measured(measure: Callable[[Job], Spent], job: Job) -> Measured:
    before = job.servers.cpu()
    with get_context("spawn").Pool(1) as processes:
        spent = processes.apply(measure, (job,))
    return Measured(spent, {name: used - before[name] for name, used in job.servers.cpu().items()})


def _wait(milliseconds: int) -> None:
    time.sleep(milliseconds / 1_000)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--envelopes", type=int, default=30_000, help="approximate number (default: %(default)s)")
    arguments.add_argument("--large", action="store_const", const=200_000, dest="envelopes", help="200 000")
    arguments.add_argument("--rounds", type=int, default=2, help="default: %(default)s")
    arguments.add_argument("--batch-size", type=int, default=500, help="records in a transaction (default: %(default)s)")
    arguments.add_argument("--only", nargs="*", default=list(MEASURED), choices=MEASURED, help="default: all")
    chosen = arguments.parse_args()
    with made(chosen.envelopes) as workload, running() as servers:
        lines = workload.read()
        left = list(bare_loop(lines, PARTITION, checked))
        fill(servers, INPUT, lines)
        job = Job(servers, SimulatedRun("", servers.directory), len(lines), len(left), left[len(left) // 2], chosen.batch_size)
        print(f"{len(lines)} envelopes, {len(left)} notifications, up to {chosen.batch_size} in a transaction", flush=True)
        _round(job, chosen.only[:1])  # Warms up the broker's compiler.
        rounds = [_round(job, chosen.only) for _ in range(chosen.rounds)]
    _show(len(lines), {name: [each[name] for each in rounds] for name in chosen.only})


def _round(job: Job, names: Sequence[str]) -> dict[str, Measured]:
    runs = {name: new_run(job.servers, name.partition(" ")[0]) for name in names}
    return {name: measured(MEASURED[name], msgspec.structs.replace(job, run=runs[name])) for name in names}


def _show(envelopes: int, by_name: dict[str, list[Measured]]) -> None:
    quickest = {name: min(each.spent.wall for each in rounds) for name, rounds in by_name.items()}
    least = {name: min(each.spent.cpu for each in rounds) for name, rounds in by_name.items()}
    print(f"\n{'':12}{'envelopes/s':>12}{'of bare':>9}{'goal':>6}{'CPU us: worker':>16}{'of bare':>9}{'servers':>9}")
    for name, rounds in by_name.items():
        ratios = [next(iter(spent.values())) / spent[name] for spent in (quickest, least)]
        servers = min(sum(each.servers.values()) for each in rounds)
        speed = f"{envelopes / quickest[name]:12,.0f}{ratios[0]:9.2f}{GOALS.get(name, ''):>6}"
        print(f"{name:12}{speed}{least[name] / envelopes * 1e6:16.1f}{ratios[1]:9.2f}{servers / envelopes * 1e6:9.1f}")


if __name__ == "__main__":
    main()
