"""Envelopes per second on real servers, compared with a bare loop from Kafka to Kafka: `python -m benchmarks.servers_throughput`.

The same envelopes (about 1.1 KB each, out of order within 2 000 places, 2 % of them twice, in a topic of four partitions) go
through

    bare loop    poll, one transaction per poll, nothing in between (`_kafka_loop.py`); decodes nothing, writes as much
    none         the whole worker, strategy SEQUENCE, state in the process
    redis        the same with state in a Redis that syncs every commit
    infinispan   the same with state in an Infinispan cache on disk, synced with every commit

each in a process of its own, with the same client settings and the same `--batch-size`. Goals are for the ratio of envelopes per
second. The time runs from when the partitions are held until the last transaction is committed. CPU is that of the process with
its client's threads and system calls; `servers us` is that of the servers.
"""

from functools import partial

from benchmarks._bare_loop import bare_loop, checked
from benchmarks._runner import Case, Figures, apart, arguments, measure, wanted
from benchmarks._servers import Servers, bare, fill, new_run, running, worker
from benchmarks._worker import PARTITION
from benchmarks._workload import line_of, made

INPUT = "envelopes"
GOALS = {"none": 0.7, "redis": 0.5, "infinispan": 0.3}


def measured(servers: Servers, name: str, envelopes: int, output: list[bytes], batch_size: int) -> Figures:
    run, before = new_run(servers, name, INPUT, envelopes, output), servers.cpu
    spent = apart(bare, run, batch_size) if name == "bare loop" else apart(worker, run, name, batch_size)
    return {**spent.of_each(envelopes), "servers us": (servers.cpu - before) / envelopes * 1e6}


def main() -> None:
    chosen = arguments(__doc__, large={"envelopes": 200_000}, envelopes=30_000, batch_size=500, rounds=2)
    storages = [name for name in ("redis", "infinispan") if wanted(chosen, name)]
    with made(chosen.envelopes) as workload, running("kafka", *storages) as servers:
        lines = workload.read()
        output = list(bare_loop(lines, PARTITION, checked))
        fill(servers, INPUT, map(line_of, lines))
        run = partial(measured, servers, envelopes=len(lines), output=output, batch_size=chosen.batch_size)
        run("bare loop")  # It warms up the broker's compiler.
        storage_cases = [Case(name, partial(run, name), "bare loop", goal) for name, goal in GOALS.items()]
        measure(chosen, [Case("bare loop", partial(run, "bare loop"), "bare loop"), *storage_cases])


if __name__ == "__main__":
    main()
