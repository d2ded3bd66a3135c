"""A broker and a storage of their own, a service of two workers on them as a daemon, and relays between them if wanted."""

from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import INGRESS, NOTIFICATION, OperatedService
from harness.waiting import wait_until
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from guardian.headers import POSSIBLE_DUPLICATE, own_texts
from notification_service.status.report import State
from notification_service.status.service_report import ServiceReport, find_reports, service_report
from notification_service.supervision.system_clock import SystemClock
from servers.kafka import KafkaServer, KafkaSettings
from tests.faults.relay import Relay
from tests.faults.storages import STORAGES, prepare
from tests.notification_service.connectors.kafka.stage import read_to_end

PARTITIONS = 4
SESSION_SECONDS = 6
LONGEST_WAIT_SECONDS = 240
"""The time-out for everything that must happen at some time: a machine may be very busy."""

_CONSUMER = f"{INGRESS}.kafka.consumer"
_CLIENTS = f"{_CONSUMER}.kafka-clients"


class Stage:
    """With `is_relayed`, `relays` stand between the workers and each server. Feeder and verifier connect directly."""

    def __init__(
        self,
        own_server: Callable[..., Any],
        directory: Path,
        storage: str,
        chance: Random,
        *overrides: str,
        is_relayed: bool = False,
    ) -> None:
        self.chance = chance
        self.directory = directory
        self.storage_name = storage
        self._kind = STORAGES[storage]
        self.broker: KafkaServer = own_server(KafkaServer)
        self.storage: Any = own_server(self._kind.kind, self._kind.settings) if self._kind.kind else None
        self.relays = [Relay(Random(chance.random())) for _ in range(2 if self.storage else 1)] if is_relayed else []
        self._name = f"faults-{uuid4().hex[:12]}"
        self.topics = [f"{self._name}-{each}" for each in ("in", "out", "dead")]
        self._start_servers()
        self._overrides = (*self._all_overrides(), *overrides)
        self.daemon = Daemon(OperatedService(directory / "first", *self._overrides))
        self._others: list[Daemon] = []

    @property
    def service(self) -> OperatedService:
        return self.daemon.service

    def start(self) -> None:
        self.daemon.start()
        wait_until(self.holds_all, "every partition is held", LONGEST_WAIT_SECONDS, 0.1)

    def another(self) -> Daemon:
        """Return another service of the same group, as on another machine, not started yet."""
        name = f"other-{len(self._others)}"
        own = f"{_CLIENTS}.group.instance.id={self._name}-{name}"
        self._others.append(Daemon(OperatedService(self.directory / name, *self._overrides, own)))
        return self._others[-1]

    def close(self) -> None:
        for each in (self.daemon, *self._others):
            each.service.verb("stop", seconds=LONGEST_WAIT_SECONDS)
        for relay in self.relays:
            relay.close()

    # The state of the service

    @property
    def report(self) -> ServiceReport:
        """The report of the first service."""
        reports = wait_until(lambda: find_reports(self.service.run_directory), "it reports")
        return service_report(reports, SystemClock().now(), is_running=True)

    def holds_all(self) -> bool:
        report = self.report
        return report.state == State.READY and len(report.whole.partitions) == PARTITIONS

    def read_to(self) -> dict[str, int]:
        """Return how far the workers of all services have read, by their reports. The last report of a dead worker is valid."""
        found: dict[str, int] = {}
        for each in (self.daemon, *self._others):
            for report in find_reports(each.service.run_directory):
                for partition in report.partitions:
                    found[partition.partition] = max(found.get(partition.partition, 0), partition.read_to)
        return found

    def has_read(self, ends: dict[str, int]) -> bool:
        read_to = self.read_to()
        return all(read_to.get(partition, 0) >= end for partition, end in ends.items())

    def is_idle(self, ends: dict[str, int]) -> bool:
        """Whether everything up to `ends` was read, its output has left, and nothing waits."""
        report = self.report.whole
        unpublished = sum(each.unpublished for each in report.partitions)
        return self.holds_all() and self.has_read(ends) and report.units.waiting == 0 and unpublished == 0

    def ends(self) -> dict[str, int]:
        """Return the ends of the input partitions; wait for the broker."""

        names = [TopicPartition(self.topics[0], number) for number in range(PARTITIONS)]
        ends = self._ask(lambda reader: reader.end_offsets(names, timeout_ms=5_000))
        return {f"{each.topic}-{each.partition}": end for each, end in ends.items()}

    def possible_duplicates(self) -> int:
        """Count the notifications with the mark."""
        return sum(POSSIBLE_DUPLICATE in own_texts(each.headers) for each in self.notifications())

    def notifications(self) -> list[Any]:
        """Return the records of the output."""
        found: list[Any] = self._ask(lambda reader: read_to_end(reader, self.topics[1]))
        return found

    def verb(self, *arguments: str, seconds: float) -> Any:
        """Run another command with the service's configuration, connected directly to the broker."""
        return self.service.verb(*arguments, "--set", _at(self.broker.bootstrap), seconds=seconds)

    def _ask(self, question: Callable[[KafkaConsumer], Any]) -> Any:
        """Return the answer to a reader of committed records; repeat the question if the broker does not answer."""
        options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}

        def ask() -> tuple[Any] | None:
            with suppress(KafkaError):
                reader = KafkaConsumer(bootstrap_servers=self.broker.bootstrap, proxy_url="direct://", **options)
                with closing(reader):
                    return (question(reader),)
            return None

        (answer,) = wait_until(ask, "the broker answers", LONGEST_WAIT_SECONDS, 0.1) or (None,)
        return answer

    # Setup

    def _start_servers(self) -> None:
        for relay in self.relays[:1]:
            self.broker.settings = _relayed(self.broker.ports, relay)
        servers = [each for each in (self.broker, self.storage) if each]
        for each in servers:
            each.launch()
        for each in servers:
            each.wait_until_ready(LONGEST_WAIT_SECONDS)
        prepare(self.storage_name, self.storage)
        self.broker.create_topics(*self.topics, partitions=PARTITIONS)

    def _all_overrides(self) -> list[str]:
        bootstrap, port = self.broker.bootstrap, self.storage.ports[self._kind.port] if self.storage else None
        if self.relays:
            bootstrap = f"127.0.0.1:{self.relays[0].port}"
        if self.relays[1:]:
            self.relays[1].target, port = port, self.relays[1].port
        source, output, dead = self.topics
        return [
            f"{INGRESS}.transport=kafka",
            f"{NOTIFICATION}.transport=kafka",
            f"{_CLIENTS}.group.id={self._name}",
            f"{_CLIENTS}.session.timeout.ms={SESSION_SECONDS * 1_000}",
            _at(bootstrap),
            f"{_CONSUMER}.topic={source}",
            f"{NOTIFICATION}.kafka.producer.topic={output}",
            f"{NOTIFICATION}.dead-letters.topic={dead}",
            f"{NOTIFICATION}.worker.count=2",
            f"{NOTIFICATION}.storage.namespace={self._name}",
            f"{NOTIFICATION}.resequencer.strategy=SEQUENCE",
            *self._kind.overrides_on(port),
        ]


def _at(bootstrap: str) -> str:
    return f'{_CLIENTS}.bootstrap.servers="{bootstrap}"'


def _relayed(ports: Any, relay: Relay) -> KafkaSettings:
    """Return settings with a second listener. It advertises the relay's port; the first one advertises its own."""
    own, behind, controller = (f"127.0.0.1:{ports[name]}" for name in ("kafka", "tls", "controller"))
    relay.target = ports["tls"]
    return KafkaSettings(
        properties={
            "listeners": f"PLAINTEXT://{own},RELAYED://{behind},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{own},RELAYED://127.0.0.1:{relay.port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    )
