"""The configuration of regions on real servers, and what is done to them under load."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from random import Random
from time import sleep
from typing import TYPE_CHECKING

from harness.processes.operated_service import INGRESS, KAFKA_CLIENTS, NOTIFICATION, RESEQUENCER

if TYPE_CHECKING:
    from harness.processes.operated_daemon import Daemon

    from servers.artemis.server import ArtemisServer
    from servers.kafka.server import KafkaServer

KINDS = ("kafka", "file", "jms")
PARTITIONS = 2
_LONGEST_LOAD_SECONDS = 120


class RegionStage:
    """Topics and queues of one test. The topics are created with the first overrides that name kafka."""

    def __init__(self, kafka: KafkaServer, artemis: ArtemisServer, fresh_name: Callable[[str], str]) -> None:
        self._kafka = kafka
        self._artemis = artemis
        self._fresh_name = fresh_name

    def overrides(self, source: str, *sinks: str) -> list[str]:
        """Return the overrides of a service from this source to these sinks, with storage embedded and strategy SEQUENCE."""
        first, *further = sinks
        found = [
            f"{INGRESS}.transport={source}",
            f"{NOTIFICATION}.transport={first}",
            f"{RESEQUENCER} {{ storage-type = embedded, strategy = SEQUENCE }}",
        ]
        if further:
            found.append(f"{NOTIFICATION}.further-transports=[{', '.join(further)}]")
        if "kafka" in (source, *sinks):
            found += self._on_kafka()
        if "jms" in (source, *sinks):
            found += self._on_jms()
        return found

    def _on_kafka(self) -> list[str]:
        topics = {name: self._fresh_name(name) for name in ("in", "out", "dead")}
        self._kafka.create_topics(*topics.values(), partitions=PARTITIONS)
        clients = f"group.id = {self._fresh_name('group')}, session.timeout.ms = 1500, heartbeat.interval.ms = 400"
        return [
            f'{KAFKA_CLIENTS} {{ bootstrap.servers = "{self._kafka.bootstrap}", {clients} }}',
            f"{INGRESS}.kafka.consumer.topic={topics['in']}",
            f"{NOTIFICATION}.kafka.producer.topic={topics['out']}",
            f"{NOTIFICATION}.dead-letters.topic={topics['dead']}",
            f"{NOTIFICATION}.kafka.markers.topic={self._fresh_name('markers')}",
        ]

    def _on_jms(self) -> list[str]:
        queue, url = self._fresh_name("in"), self._artemis.url
        parts = ", ".join(f'{{ queue = {queue}, selector = "part = {number}" }}' for number in range(PARTITIONS))
        queues = ", ".join(f"{name}.queue = {self._fresh_name(name)}" for name in ("notifications", "dead-letters", "markers"))
        return [
            f'{INGRESS}.jms {{ url = "{url}", partitions = [{parts}] }}',
            f'{NOTIFICATION}.jms {{ url = "{url}", {queues} }}',
        ]

    def feed_and_kill(self, daemon: Daemon, load: Sequence[str], chance: Random) -> int:
        """Start the service, simulate the load, and kill the worker at random instants until all is written; return how often."""
        daemon.start()
        feeding = daemon.service.begin_verb("simulate", "--seed", "1", "--partitions", str(PARTITIONS), *load)
        kills = 0
        while feeding.poll() is None:
            sleep(chance.uniform(0.2, 1.2))
            worker = daemon.worker
            if worker is not None:
                os.kill(worker, signal.SIGKILL)
                daemon.wait_for_another_worker(worker)
                kills += 1
        assert feeding.wait(_LONGEST_LOAD_SECONDS) == 0, (daemon.service.directory / "simulate.log").read_text()
        return kills

    def expect_every_promise_held(self, daemon: Daemon) -> None:
        """Wait until all output has come, stop the service, and compare once more."""
        verb = daemon.service.verb
        followed = verb("verify", "--follow", "--give-up-after", "60s", seconds=120)
        assert "every promise was held" in followed.stdout, followed.stdout + followed.stderr
        assert verb("stop").returncode == 0
        assert "every promise was held" in verb("verify").stdout
