"""Envelopes per second on real servers, compared with a bare loop from Kafka to Kafka: `python -m benchmarks.servers_throughput`.

The same envelopes (about 1.1 KB each, out of order within 2 000 places, 2 % of them twice, in a topic of four partitions) go
through

    bare loop    poll, one transaction per poll, nothing in between (`_kafka_loop.py`); decodes nothing, writes as much
    none         the whole worker, strategy SEQUENCE, state in the process
    redis        the same with state in a Redis that syncs every commit
    infinispan   the same with state in an Infinispan cache on disk, synced with every commit
    two workers  as with redis; each of two workers has two of the partitions

each in a process of its own, with the same client settings and batch size. Goals are for the ratio of envelopes per second. The
time runs from when the partitions are held until the last transaction is committed. CPU is that of the process with its client's
threads and system calls; `servers us` is that of the servers.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from multiprocessing import get_context

from benchmarks._bare_loop import bare_loop, checked
from benchmarks._runner import Case, Figures, Spent, arguments, measure, wanted
from benchmarks._servers import PARTITIONS, Servers, bare, fill, new_run, running, worker
from benchmarks._worker import PARTITION, line_of, made
from notification_service.connectors.kafka.producer import partition_of

INPUT = "envelopes"
CASES = {
    "none": ("none", 1, 0.7),
    "redis": ("redis", 1, 0.5),
    "infinispan": ("infinispan", 1, 0.3),
    "two workers": ("redis", 2, ""),
}
"""The storage, the number of workers and the goal."""


def measured(servers: Servers, storage: str, workers: int, envelopes: Mapping[int, list[bytes]]) -> Figures:
    """Let workers share the partitions, with these envelopes, at the same time; without a storage it is the bare loop."""
    runs, before = [], servers.cpu
    for first in range(workers):
        partitions = range(first, PARTITIONS, workers)
        lines = [line for number in partitions for line in envelopes[number]]
        output = list(bare_loop(lines, PARTITION, checked))
        runs.append(new_run(servers, storage or "bare", INPUT, len(lines), output, partitions))
    with get_context("spawn").Pool(workers) as processes:
        program = partial(worker, storage=storage, beside=runs) if storage else bare
        spent = processes.map(program, runs)
    count, used = sum(map(len, envelopes.values())), servers.cpu - before
    together = Spent(max(each.wall for each in spent), sum(each.cpu for each in spent))
    return {**together.of_each(count), "servers us": used / count * 1e6}


def main() -> None:
    chosen = arguments(__doc__, large={"envelopes": 200_000}, envelopes=30_000, rounds=2)
    storages = {storage for name, (storage, _, _) in CASES.items() if wanted(chosen, name)} - {"none"}
    with made(chosen.envelopes) as workload, running("kafka", *storages) as servers:
        envelopes = defaultdict[int, list[bytes]](list)
        for line in workload.read():
            envelopes[partition_of(line_of(line).key, PARTITIONS)].append(line)
        fill(servers, INPUT, (line_of(line) for line in workload.read()))
        loop = partial(measured, servers, "", 1, envelopes)
        loop()  # It warms up the broker's compiler.
        cases = [Case("bare loop", loop, "bare loop")]
        for name, (storage, workers, goal) in CASES.items():
            cases.append(Case(name, partial(measured, servers, storage, workers, envelopes), "bare loop", goal))
        measure(chosen, cases)


if __name__ == "__main__":
    main()
