"""From an envelope's arrival to its notification, on real servers: `python -m benchmarks.servers_latency [--rate 1000]`.

Envelopes come at a steady rate, in order, so that none waits for another, in a topic of four partitions. An envelope's time
starts when the broker appended it, by the broker's timestamp. It ends when a `read_committed` reader, a process of its own,
gets the output. Measured are the bare loop (`_kafka_loop.py`) and the whole worker with each storage, one after the other. The
first seconds are a warm-up and do not count.
"""

import argparse
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from multiprocessing import get_context

import msgspec
from kafka import KafkaConsumer, TopicPartition

from benchmarks._bare_loop import bare_loop, checked
from benchmarks._servers import PARTITIONS, Addresses, configured, make_topics, new_run, running
from benchmarks._worker import PARTITION
from benchmarks._workload import made
from benchmarks.servers_throughput import MEASURED, Job
from guardian.headers import SOURCE_POSITION
from notification_service.commands.simulate import new_retry
from notification_service.configuration.transports import kafka_settings
from notification_service.simulator.generate.kafka_input import KafkaInput
from resequencer.record import Origin, Partition

WARM_UP_SECONDS = 5
GIVE_UP_SECONDS = 120
SHARES = (0.5, 0.9, 0.99, 1)


def seen_at(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Return, by the position of its input, when the output of each of so many records could be read."""
    seen: dict[str, float] = {}
    with _reader(bootstrap, topic) as reader:
        give_up = time.time() + GIVE_UP_SECONDS
        while len(seen) < count and time.time() < give_up:
            found = reader.poll(timeout_ms=500)
            now = time.time()
            seen |= {dict(each.headers)[SOURCE_POSITION].decode(): now for records in found.values() for each in records}
    return seen


def arrived_at(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """Return the broker's timestamp of each of so many records, by position."""
    arrived: dict[str, float] = {}
    with _reader(bootstrap, topic) as reader:
        while len(arrived) < count:
            for records in reader.poll(timeout_ms=500).values():
                origins = [Origin(Partition(each.topic, each.partition), each.offset) for each in records]
                arrived |= {str(at): each.timestamp / 1_000 for at, each in zip(origins, records, strict=True)}
    return arrived


@contextmanager
def _reader(bootstrap: str, topic: str) -> Iterator[KafkaConsumer]:
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, **options)) as reader:
        reader.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        yield reader


def send(job: Job, lines: list[bytes], rate: float) -> None:
    """Send the lines at the rate, and catch up after a delay."""
    settings = kafka_settings(configured(job.servers, job.run, job.topic, "none"))
    settings = msgspec.structs.replace(settings, producer={**settings.producer, "linger_ms": 0})
    with KafkaInput(settings, new_retry()) as sink:
        began = time.monotonic()
        for number, line in enumerate(lines):
            if (early := began + number / rate - time.monotonic()) > 0:
                time.sleep(early)
            sink.append(sink.partition_of(msgspec.json.decode(line)["key"].encode()), line)


def measured(servers: Addresses, name: str, lines: list[bytes], left: list[bytes], rate: float) -> list[float]:
    """Return the milliseconds of each envelope that has output, ascending."""
    run = new_run(servers, f"latency-{name.partition(' ')[0]}")
    job = Job(servers, run, len(lines), len(left), left[len(left) // 2], topic=f"in-{run.name}")
    make_topics(servers, job.topic, message_timestamp_type="LogAppendTime")
    expected = (
        len(lines) if name == "bare loop" else len({msgspec.json.decode(each)["headers"][SOURCE_POSITION] for each in left})
    )
    with get_context("spawn").Pool(2) as processes:
        worker = processes.apply_async(MEASURED[name], (job,))
        reader = processes.apply_async(seen_at, (servers.kafka, f"out-{run.name}", expected))
        while not run.is_ready():
            time.sleep(0.1)
        send(job, lines, rate)
        seen = reader.get()
        worker.get()
    assert len(seen) == expected, f"{expected} were to leave, {len(seen)} were seen"
    arrived = arrived_at(servers.kafka, job.topic, len(lines))
    counts_from = min(arrived.values()) + WARM_UP_SECONDS
    return sorted((seen[each] - at) * 1_000 for each, at in arrived.items() if each in seen and at >= counts_from)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rate", type=float, default=1_000, help="envelopes a second (default: %(default)s)")
    arguments.add_argument("--seconds", type=float, default=15, help="duration, warm-up included (default: %(default)s)")
    arguments.add_argument("--only", nargs="*", default=list(MEASURED), choices=MEASURED, help="default: all")
    chosen = arguments.parse_args()
    with made(round(chosen.rate * chosen.seconds), window=0, duplicates="0") as workload, running() as servers:
        lines = workload.read()
        left = list(bare_loop(lines, PARTITION, checked))
        print(f"{len(lines)} envelopes at {chosen.rate:g} a second; milliseconds from arrival to visible")
        print(f"{'':12}{'p50':>10}{'p90':>10}{'p99':>10}{'longest':>10}", flush=True)
        for name in chosen.only:
            milliseconds = measured(servers, name, lines, left, chosen.rate)
            at = [milliseconds[min(int(len(milliseconds) * share), len(milliseconds) - 1)] for share in SHARES]
            print(f"{name:12}" + "".join(f"{each:10.1f}" for each in at), flush=True)


if __name__ == "__main__":
    main()
