"""Starts real servers for the benchmarks, in a fast configuration; their data ends with the benchmark."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from uuid import uuid4

import msgspec

from benchmarks._workload import override
from notification_service.commands.simulate import new_retry
from notification_service.configuration.configuration import Configuration, load
from notification_service.configuration.transports import kafka_settings
from notification_service.simulator.generate.kafka_input import KafkaInput
from servers.infinispan import InfinispanServer, InfinispanSettings
from servers.kafka import KafkaServer, KafkaSettings
from servers.lease import leased
from servers.redis import RedisServer

PARTITIONS = 4
_JAVA = ("-Xmx1g",)
"""The default compilers, as `make servers` uses."""

_ROOMY_JAVA = ("-Xmx3g",)
"""Enough heap for a million idle units."""

_READY = "ready"
_TICKS = os.sysconf("SC_CLK_TCK")


class Addresses(msgspec.Struct, frozen=True):
    """The servers' addresses, passed to other processes; `processes` are the servers' process ids by name."""

    kafka: str
    redis: str
    infinispan: str
    directory: Path
    processes: dict[str, int]

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds that each server has used since its start."""
        return {name: _cpu_of(process) for name, process in self.processes.items()}


class SimulatedRun(NamedTuple):
    """Names that only one measurement uses: group, output topic, namespace and run directory."""

    name: str
    directory: Path

    def note_ready(self) -> None:
        """Note that the measured process holds its partitions."""
        (self.directory / _READY).touch()

    def is_ready(self) -> bool:
        return (self.directory / _READY).exists()


@contextmanager
def running() -> Iterator[Addresses]:
    """Start Kafka, a Redis that syncs every write, and Infinispan. They end with this process, even if it is killed."""
    with ExitStack() as stack:
        parent = stack.enter_context(TemporaryDirectory(prefix="resequencer-benchmark-", ignore_cleanup_errors=True))
        directory = stack.enter_context(leased(Path(parent) / "servers"))
        kafka = KafkaServer(directory / "kafka", KafkaSettings(java_options=_JAVA))
        redis = RedisServer(directory / "redis")
        infinispan = InfinispanServer(directory / "infinispan", InfinispanSettings(java_options=_ROOMY_JAVA))
        servers = {"kafka": kafka, "redis": redis, "infinispan": infinispan}
        for each in servers.values():
            stack.callback(each.kill)
            each.launch()
        for each in servers.values():
            each.wait_until_ready()
        processes = {name: process.pid for name, each in servers.items() if (process := each.process)}
        yield Addresses(kafka.bootstrap, redis.url, infinispan.url, directory, processes)


def new_run(servers: Addresses, kind: str) -> SimulatedRun:
    """Return new names, and create the topics."""
    run = SimulatedRun(f"{kind}-{uuid4().hex[:8]}", servers.directory / "runs" / uuid4().hex[:8])
    run.directory.mkdir(parents=True)
    make_topics(servers, f"out-{run.name}", f"dead-{run.name}")
    return run


def make_topics(servers: Addresses, *names: str, partitions: int = PARTITIONS, **options: str) -> None:
    """Create topics. `options` are Kafka's, with `_` for `.`."""
    config = {name.replace("_", "."): value for name, value in options.items()}
    KafkaServer(servers.directory / "kafka").create_topics(*names, partitions=partitions, config=config)


def configured(servers: Addresses, run: SimulatedRun, input_topic: str, storage: str, *chosen: str) -> Configuration:
    """Return the configuration of a worker on these servers, with default keys; no deadline passes, even on a slow machine."""
    clients = f'kafka-clients {{ bootstrap.servers = "{servers.kafka}"'
    ingress = "ipf.processing-data.ingress"
    keys = [
        f"{ingress}.transport = kafka",
        f'{ingress}.kafka.consumer {{ topic = "{input_topic}", {clients}, group.id = "{run.name}" }} }}',
        f'payment-status-notification.kafka.producer {{ topic = "out-{run.name}", {clients} }} }}',
        override("dead-letters.topic", f"dead-{run.name}"),
        override("transport", "kafka"),
        override("run-directory", run.directory),
        override("resequencer.storage-type", storage),
        override("resequencer.strategy", "SEQUENCE"),
        override("resequencer.stash-timeout", "1h"),
        override("storage.namespace", run.name),
        override("storage.redis.url", servers.redis),
        override("storage.infinispan.url", servers.infinispan),
    ]
    return load(overrides=[*keys, *chosen])


def fill(servers: Addresses, topic: str, lines: list[bytes]) -> None:
    """Send each line to its key's partition, and wait until all have arrived."""
    make_topics(servers, topic)
    settings = kafka_settings(configured(servers, new_run(servers, topic), topic, "none"))
    with KafkaInput(settings, new_retry()) as sink:
        for line in lines:
            sink.append(sink.partition_of(_key(line)), line)


def _key(line: bytes) -> bytes:
    key: str = msgspec.json.decode(line)["key"]
    return key.encode()


def _cpu_of(process: int) -> float:
    """Return user and system time, fields 14 and 15 of proc(5)."""
    fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
