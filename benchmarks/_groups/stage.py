"""A broker of its own for the benchmark of groups, topics, and what each measured program has."""

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import msgspec
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks._groups.commands import Sent, Shape
from benchmarks._processes import cpu_of_family
from guardian.headers import GROUP_ID, INCOMPLETE
from notification_service.aggregation.kafka.store import KafkaStore
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import StoreRunner
from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.supervision.system_clock import SystemClock, steady_clock
from servers.kafka import KafkaServer
from servers.kafka import KafkaSettings as ServerSettings
from servers.lease import leased

PARTITIONS = 4
_JAVA = ("-Xmx1g",)
"""The default compilers, as `make servers` uses."""

_MAX_VALUE_BYTES = 5 << 20


class WrongResult(Exception):
    """A group has no completion, or another than it should: the figures mean nothing."""


class Broker(msgspec.Struct, frozen=True):
    """Passed to other processes; `process` is its process id."""

    bootstrap: str
    directory: Path
    process: int

    @property
    def cpu(self) -> float:
        """The CPU seconds since its start."""
        return cpu_of_family(self.process)

    def make_topics(self, *names: str, partitions: int = PARTITIONS, **options: str) -> None:
        """Create topics. `options` are Kafka's, with `_` for `.`."""
        config = {name.replace("_", "."): value for name, value in options.items()}
        KafkaServer(self.directory / "kafka").create_topics(*names, partitions=partitions, config=config)


class Load(msgspec.Struct, frozen=True):
    """So many commands in a topic, for so many members of groups."""

    commands: str
    count: int
    shape: Shape = Shape.HUNDREDS
    members: int = 0


class Job(msgspec.Struct, frozen=True):
    """What one program does that is measured, in a process of its own, with names that only it uses."""

    broker: Broker
    name: str
    load: Load

    @property
    def values(self) -> str:
        return f"values-{self.name}"

    @property
    def completions(self) -> str:
        return f"completions-{self.name}"

    @property
    def dead_letters(self) -> str:
        return f"dead-letters-{self.name}"

    @property
    def directory(self) -> Path:
        return self.broker.directory / self.name

    @property
    def settings(self) -> KafkaSettings:
        topics = KafkaTopics(self.load.commands, self.completions, self.dead_letters, values=self.values)
        own = {"bootstrap.servers": self.broker.bootstrap}
        options, _, _ = read_options({**own, "group.id": self.name}, own)
        return KafkaSettings.make(topics, options, f"{self.name}.0", _MAX_VALUE_BYTES)

    def note_ready(self) -> None:
        """Note that the program holds its partitions."""
        (self.directory / "ready").touch()

    def is_ready(self) -> bool:
        return (self.directory / "ready").exists()


@contextmanager
def running() -> Iterator[Broker]:
    """Start Kafka, which ends with this process, even if that is killed; its data ends with it."""
    with ExitStack() as stack:
        parent = stack.enter_context(TemporaryDirectory(prefix="resequencer-benchmark-", ignore_cleanup_errors=True))
        directory = stack.enter_context(leased(Path(parent) / "groups"))
        kafka = KafkaServer(directory / "kafka", ServerSettings(java_options=_JAVA))
        stack.callback(kafka.kill)
        kafka.start()
        assert kafka.process is not None
        yield Broker(kafka.bootstrap, directory, kafka.process.pid)


def new_job(broker: Broker, what: str, load: Load) -> Job:
    """Return new names, with their topics."""
    job = Job(broker, f"{what.replace(' ', '-')}-{uuid4().hex[:8]}", load)
    job.directory.mkdir(parents=True)
    broker.make_topics(job.completions, job.dead_letters)
    broker.make_topics(job.values, cleanup_policy="compact")
    return job


def make_runner(job: Job, aggregate: Any = None) -> StoreRunner:
    """Return the store as an aggregation worker runs it."""
    opened = partial(KafkaStore, job.settings, job.directory / "values", SystemClock())
    clock = steady_clock(job.directory, "groups", 0, keeps=False)
    return StoreRunner(job.name, aggregate or PaymentsOfMessage(PaymentsSettings()), opened, clock, _must_not_wait)


@contextmanager
def sending(broker: Broker) -> Iterator[KafkaProducer]:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, batch_size=256 << 10, linger_ms=20)) as producer:
        yield producer
        producer.flush()


def send(producer: KafkaProducer, topic: str, sent: Sent) -> None:
    producer.send(topic, sent.body, sent.key.encode(), list(sent.headers))


@contextmanager
def reader(broker: Broker, topic: str) -> Iterator[KafkaConsumer]:
    """Yield a reader of what is committed, from the beginning on."""
    options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, **options)) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))])
        yield consumer


def records_of(broker: Broker, topic: str) -> Iterator[Any]:
    """Yield all committed records of a topic, as the client gives them."""
    with reader(broker, topic) as consumer:
        ends = consumer.end_offsets(consumer.assignment())
        while any(consumer.position(each) < end for each, end in ends.items()):
            for records in consumer.poll(timeout_ms=500, max_records=5_000).values():
                yield from records


def check(job: Job) -> None:
    """Check that each group has one report, which counts all of its members, and that nothing became a dead letter.

    Raises:
        WrongResult: It is not so.
    """
    members, reported = job.load.members, dict[str, int]()
    total = job.load.shape.total(members)
    for record in records_of(job.broker, job.completions):
        headers, report = dict(record.headers), msgspec.json.decode(record.value)["CstmrPmtStsRpt"]
        group = headers[GROUP_ID].decode()
        counts = [int(each["DtldNbOfTxs"]) for each in report["OrgnlGrpInfAndSts"]["NbOfTxsPerSts"]]
        if group in reported or sum(counts) != total or INCOMPLETE in headers:
            raise WrongResult(f"{group} has {counts} of {total} payments, after {reported.get(group)}")
        reported[group] = sum(counts)
    if len(reported) != members // total:
        raise WrongResult(f"{len(reported)} of {members // total} groups have completed")
    if letters := sum(1 for _ in records_of(job.broker, job.dead_letters)):
        raise WrongResult(f"{letters} dead letters")


def _must_not_wait(milliseconds: int) -> None:
    raise AssertionError(f"the store stands still for {milliseconds} ms")
