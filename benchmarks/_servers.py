"""Starts real servers for the benchmarks, in a fast configuration, and runs workers on them; their data ends with them."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from kafka import KafkaConsumer, TopicPartition

from benchmarks._kafka_loop import KafkaLoop
from benchmarks._runner import Spent, Stopwatch, WrongResult, cpu_of_family, directory
from benchmarks._workload import override
from notification_service.commands.simulate import new_retry
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.transports import kafka_settings
from notification_service.simulator.generate.kafka_input import KafkaInput
from notification_service.wiring.composition import Parts, compose
from resequencer.gc_tuning import calm_collector
from servers.infinispan import InfinispanServer, InfinispanSettings
from servers.kafka import KafkaServer, KafkaSettings
from servers.lease import leased
from servers.redis import RedisServer

PARTITIONS = 4
GIVE_UP_SECONDS = 120
_JAVA = ("-Xmx1g",)
"""The default compilers, as `make servers` uses."""

_ROOMY_JAVA = ("-Xmx3g",)
"""Enough heap for a million idle units."""


class Servers(msgspec.Struct, frozen=True):
    """The servers' addresses, passed to other processes; `processes` are the servers' process ids by name."""

    directory: Path
    addresses: dict[str, str]
    processes: dict[str, int]

    @property
    def cpu(self) -> float:
        """The CPU seconds that the servers have used since their start."""
        return sum(map(cpu_of_family, self.processes.values()))

    def make_topics(self, *names: str, partitions: int = PARTITIONS, **options: str) -> None:
        """Create topics. `options` are Kafka's, with `_` for `.`."""
        config = {name.replace("_", "."): value for name, value in options.items()}
        KafkaServer(self.directory / "kafka").create_topics(*names, partitions=partitions, config=config)

    def new_run(self, kind: str, topic: str, envelopes: int = 0, output: Sequence[bytes] = ()) -> "Run":
        """Return new names for so many envelopes, of which the worker makes this output, and create the topics."""
        sample = output[len(output) // 2] if output else b"{}"
        run = Run(self, f"{kind.replace(' ', '-')}-{uuid4().hex[:8]}", topic, envelopes, len(output), sample)
        run.directory.mkdir(parents=True)
        self.make_topics(f"out-{run.name}", f"dead-{run.name}")
        return run


class Measurement(msgspec.Struct, frozen=True):
    """What one program does that is measured, in a process of its own, with names that only it uses."""

    servers: Servers
    name: str

    @property
    def directory(self) -> Path:
        return self.servers.directory / "runs" / self.name

    def note_ready(self) -> None:
        """Note that the measured process holds its partitions."""
        (self.directory / "ready").touch()

    def wait_until_ready(self) -> None:
        while not (self.directory / "ready").exists():
            time.sleep(0.1)


class Run(Measurement, frozen=True):
    """A worker over the envelopes of a topic. `notifications` are expected; `sample` is a typical output line."""

    topic: str
    envelopes: int = 0
    notifications: int = 0
    sample: bytes = b"{}"

    def configuration(self, storage: str, *chosen: str) -> Configuration:
        """Return the configuration of a worker with default keys; no deadline passes, even on a slow machine."""
        addresses = self.servers.addresses
        clients = f'kafka-clients {{ bootstrap.servers = "{addresses["kafka"]}"'
        ingress = "ipf.processing-data.ingress"
        keys = [
            f"{ingress}.transport = kafka",
            f'{ingress}.kafka.consumer {{ topic = "{self.topic}", {clients}, group.id = "{self.name}" }} }}',
            f'payment-status-notification.kafka.producer {{ topic = "out-{self.name}", {clients} }} }}',
            override("dead-letters.topic", f"dead-{self.name}"),
            override("transport", "kafka"),
            override("run-directory", self.directory),
            override("resequencer.storage-type", storage),
            override("resequencer.strategy", "SEQUENCE"),
            override("resequencer.stash-timeout", "1h"),
            override("storage.namespace", self.name),
            *(override(f"storage.{name}.url", url) for name, url in addresses.items() if name != "kafka"),
        ]
        return load(overrides=[*keys, *chosen])

    @contextmanager
    def composed(self, storage: str, *chosen: str) -> Iterator[Parts]:
        """Yield a worker as the service composes it."""
        logging.getLogger("resequencer").setLevel(logging.ERROR)
        parts = compose(self.configuration(storage, *chosen), _wait, lambda: False)
        try:
            yield parts
        finally:
            for each in parts.servers:
                each.close()


@contextmanager
def running(*names: str) -> Iterator[Servers]:
    """Start Kafka, a Redis that syncs every write, or Infinispan. They end with this process, even if it is killed."""
    with ExitStack() as stack:
        place = stack.enter_context(leased(stack.enter_context(directory()) / "servers"))
        makers = {
            "kafka": lambda: KafkaServer(place / "kafka", KafkaSettings(java_options=_JAVA)),
            "redis": lambda: RedisServer(place / "redis"),
            "infinispan": lambda: InfinispanServer(place / "infinispan", InfinispanSettings(java_options=_ROOMY_JAVA)),
        }
        servers: dict[str, Any] = {name: makers[name]() for name in names}
        for each in servers.values():
            stack.callback(each.kill)
            each.launch()
        for each in servers.values():
            each.wait_until_ready()
        addresses = {name: each.bootstrap if name == "kafka" else each.url for name, each in servers.items()}
        yield Servers(place, addresses, {name: each.process.pid for name, each in servers.items()})


def fill(servers: Servers, topic: str, lines: list[bytes]) -> None:
    """Send each line to its key's partition, and wait until all have arrived."""
    servers.make_topics(topic)
    with input_of(servers.new_run(topic, topic)) as sink:
        for line in lines:
            sink.append(sink.partition_of(key_of(line)), line)


@contextmanager
def input_of(run: Run, **producer: object) -> Iterator[KafkaInput]:
    settings = kafka_settings(run.configuration("none"))
    with KafkaInput(msgspec.structs.replace(settings, producer=settings.producer | producer), new_retry()) as sink:
        yield sink


def key_of(line: bytes) -> bytes:
    key: str = msgspec.json.decode(line)["key"]
    return key.encode()


@contextmanager
def reader(servers: Servers, topic: str) -> Iterator[KafkaConsumer]:
    """Yield a reader of what is committed, from the beginning on."""
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(bootstrap_servers=servers.addresses["kafka"], **options)) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))])
        yield consumer


def records_of(servers: Servers, topic: str) -> Iterator[Any]:
    """Yield all committed records of a topic, as the client gives them."""
    with reader(servers, topic) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        while any(consumer.position(each) < end for each, end in ends.items()):
            for records in consumer.poll(timeout_ms=500, max_records=5_000).values():
                yield from records


def seen_at(measurement: Measurement, topic: str, header: str, count: int) -> dict[str, float]:
    """Return when a record with each of so many values of the header could be read; wait so long for the next new one.

    Raises:
        WrongResult: Some did not come.
    """
    seen, give_up = dict[str, float](), None
    with reader(measurement.servers, topic) as consumer:
        while len(seen) < count:
            found = consumer.poll(timeout_ms=500)
            now, before = time.time(), len(seen)
            seen |= {dict(each.headers)[header].decode(): now for records in found.values() for each in records}
            give_up = now + GIVE_UP_SECONDS if len(seen) > before or give_up is None else give_up
            if now > give_up:
                raise WrongResult(f"{len(seen)} of {count} were seen")
    return seen


def bare(run: Run, batch_size: int) -> Spent:
    """Pass on all envelopes with the client alone, from when it holds the partitions."""
    notification = msgspec.json.decode(run.sample)
    headers = [(name, value.encode()) for name, value in notification["headers"].items()]
    value = msgspec.json.encode(notification["value"])
    with closing(KafkaLoop(kafka_settings(run.configuration("none")), headers, value)) as loop:
        loop.join(PARTITIONS)
        run.note_ready()
        watch = Stopwatch()
        loop.run(run.envelopes, batch_size)
        return watch.spent()


def worker(run: Run, storage: str, batch_size: int) -> Spent:
    """Process all envelopes with the whole worker, from when it holds the partitions until the last transaction is committed."""
    with run.composed(storage, f"ipf.processing-data.ingress.batch-size = {batch_size}") as parts:
        cycle = parts.cycle
        calm_collector()
        while len(cycle.partitions.owned) < PARTITIONS:
            cycle.run_once()
        run.note_ready()
        began_with, watch = cycle.metrics.counts["records"], Stopwatch()
        while cycle.metrics.counts["records"] < run.envelopes:
            cycle.run_once()
        spent = watch.spent()
        cycle.close()
    published = cycle.metrics.notifications.total()
    assert published == run.notifications, f"{published} notifications of {run.notifications} are published"
    measured = 1 - began_with / run.envelopes
    return Spent(spent.wall / measured, spent.cpu / measured)


def _wait(milliseconds: int) -> None:
    time.sleep(milliseconds / 1_000)
