"""Starts real servers for the benchmarks, in a fast configuration, and runs workers on them; their data ends with them."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import get_context
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks._kafka_loop import kafka_loop, one_for_each
from benchmarks._runner import Spent, Stopwatch, WrongResult, cpu_of_family, directory, steadily
from benchmarks._worker import override
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.transports import kafka_settings
from notification_service.connectors.line_format import Line
from notification_service.supervision.stop_signal import StopSignal
from notification_service.wiring.composition import Parts, compose
from resequencer.gc_tuning import calm_collector
from servers.infinispan import InfinispanServer, InfinispanSettings
from servers.kafka import KafkaServer, KafkaSettings
from servers.lease import leased
from servers.postgresql import PostgresqlServer
from servers.redis import RedisServer

PARTITIONS = 4
GIVE_UP_SECONDS = 120
_AT_ONCE = 500
"""Records of a poll, as the service takes them by default."""

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


class Measurement(msgspec.Struct, frozen=True):
    """What one program does with so many records of a topic, in a process of its own, with names that only it uses."""

    servers: Servers
    name: str
    topic: str
    count: int

    @property
    def directory(self) -> Path:
        return self.servers.directory / "runs" / self.name

    def note_ready(self) -> None:
        """Note that the measured process holds its partitions."""
        (self.directory / "ready").touch()

    def wait_until_ready(self, process: "AsyncResult[Any] | None" = None) -> None:
        """Wait for the note; the measured process must not end before."""
        while not (self.directory / "ready").exists():
            time.sleep(0.1)
            if process is not None and process.ready():
                process.get()

    def run(
        self,
        turn: Callable[[], object],
        done: Callable[[], int],
        is_held: Callable[[], bool],
        beside: Sequence["Measurement"] = (),
    ) -> Spent:
        """Take turns, measured from when this one and those beside it hold their partitions until all records are done."""
        calm_collector()
        while not is_held():
            turn()
        self.note_ready()
        for each in beside:
            each.wait_until_ready()
        began_with, watch = done(), Stopwatch()
        while done() < self.count:
            turn()
        spent, measured = watch.spent(), 1 - began_with / self.count
        return Spent(spent.wall / measured, spent.cpu / measured)


class Run(Measurement, frozen=True):
    """A worker over the envelopes of a topic, or of these partitions of it. `sample` is a typical one of the expected lines."""

    notifications: int
    sample: bytes
    partitions: Sequence[int]

    def configuration(self, storage: str) -> Configuration:
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
            *([f"{ingress}.kafka.partitions = {list(self.partitions)}"] if len(self.partitions) < PARTITIONS else ()),
            *(override(f"storage.{name}.url", url) for name, url in addresses.items() if name != "kafka"),
        ]
        return load(overrides=keys)

    @contextmanager
    def composed(self, storage: str) -> Iterator[Parts]:
        """Yield a worker as the service composes it."""
        logging.getLogger("resequencer").setLevel(logging.ERROR)
        parts = compose(self.configuration(storage), StopSignal().wait, lambda: False)
        try:
            yield parts
        finally:
            for each in parts.servers:
                each.close()


def new_name(kind: str) -> str:
    return f"{kind.replace(' ', '-').replace(',', '')}-{uuid4().hex[:8]}"


def new_run(
    servers: Servers,
    kind: str,
    topic: str,
    envelopes: int = 0,
    output: Sequence[bytes] = (b"{}",),
    partitions: Sequence[int] = range(PARTITIONS),
) -> Run:
    """Return new names for so many envelopes, of which the worker makes this output, and create the topics."""
    run = Run(servers, new_name(kind), topic, envelopes, len(output), output[len(output) // 2], partitions)
    run.directory.mkdir(parents=True)
    servers.make_topics(f"out-{run.name}", f"dead-{run.name}")
    return run


@contextmanager
def running(*names: str) -> Iterator[Servers]:
    """Start Kafka, a Redis that syncs every write, PostgreSQL or Infinispan. They end with this process, even if it is killed."""
    with ExitStack() as stack:
        place = stack.enter_context(leased(stack.enter_context(directory()) / "servers"))
        makers = {
            "kafka": lambda: KafkaServer(place / "kafka", KafkaSettings(java_options=_JAVA)),
            "redis": lambda: RedisServer(place / "redis"),
            "postgresql": lambda: PostgresqlServer(place / "postgresql"),
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


@contextmanager
def sending(servers: Servers, topic: str, **options: object) -> Iterator[Callable[[Line], object]]:
    """Yield what sends a record to its key's partition; at the end all have arrived."""
    with closing(KafkaProducer(bootstrap_servers=servers.addresses["kafka"], **options)) as producer:
        yield lambda line: producer.send(topic, line.value, line.key, list(line.headers))
        producer.flush()


def fill(servers: Servers, topic: str, lines: Iterable[Line]) -> int:
    """Send all lines to a new topic, and return how many they are."""
    servers.make_topics(topic)
    with sending(servers, topic, batch_size=256 << 10, linger_ms=20) as send:
        return sum(1 for _ in map(send, lines))


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


def seen_steadily(
    run: Measurement, program: Callable[[], Spent], lines: Sequence[Line], rate: float, output: str, header: str, count: int
) -> dict[str, float]:
    """Let the program run while records come at a steady rate, with the broker's time of the append as their timestamp.

    Return when a reader, a process of its own, had a committed record of the output with each of so many values of the header.
    """
    run.servers.make_topics(run.topic, message_timestamp_type="LogAppendTime")
    with get_context("spawn").Pool(2) as processes:
        working = processes.apply_async(program)
        reading = processes.apply_async(_seen_at, (run.servers, output, header, count))
        run.wait_until_ready(working)
        with sending(run.servers, run.topic, linger_ms=0) as send:
            for line in steadily(lines, rate):
                send(line)
        seen: dict[str, float] = reading.get()
        working.get()
    return seen


def _seen_at(servers: Servers, topic: str, header: str, count: int) -> dict[str, float]:
    """Wait so long for the next new one.

    Raises:
        WrongResult: Some did not come.
    """
    seen, give_up = dict[str, float](), None
    with reader(servers, topic) as consumer:
        while len(seen) < count:
            found = consumer.poll(timeout_ms=500)
            now, before = time.time(), len(seen)
            seen |= {dict(each.headers)[header].decode(): now for records in found.values() for each in records}
            give_up = now + GIVE_UP_SECONDS if len(seen) > before or give_up is None else give_up
            if now > give_up:
                raise WrongResult(f"{len(seen)} of {count} were seen")
    return seen


def bare(run: Run) -> Spent:
    """Pass on all envelopes with the client alone, from when it holds the partitions."""
    sample, settings = msgspec.json.decode(run.sample), kafka_settings(run.configuration("none"))
    output = one_for_each(f"out-{run.name}", sample["headers"], msgspec.json.encode(sample["value"]))
    return kafka_loop(settings, output, run.count, _AT_ONCE, PARTITIONS, run.note_ready)


def worker(run: Run, storage: str, beside: Sequence[Run] = ()) -> Spent:
    """Process all envelopes with the whole worker, from when it holds the partitions until the last transaction is committed."""
    with run.composed(storage) as parts:
        cycle = parts.cycle
        done, is_held = lambda: int(cycle.metrics.counts["records"]), lambda: len(cycle.partitions.owned) == len(run.partitions)
        spent = run.run(cycle.run_once, done, is_held, beside)
        cycle.close()
    published = cycle.metrics.notifications.total()
    assert published == run.notifications, f"{published} notifications of {run.notifications} are published"
    return spent
