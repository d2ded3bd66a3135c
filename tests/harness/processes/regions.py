"""The configuration of regions on real servers, and what is done to them under load."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from harness.processes.operated_service import INGRESS, KAFKA_CLIENTS, NOTIFICATION, RESEQUENCER
from harness.waiting import pause_at_random, wait_until
from kafka.admin import ConfigResource, ConfigResourceType

if TYPE_CHECKING:
    from harness.processes.operated_daemon import Daemon

    from servers.artemis import ArtemisServer
    from servers.kafka import KafkaServer
    from servers.mosquitto import MosquittoServer
    from servers.server import Server

PARTITIONS = 2
LOAD = ("--units", "150", "--rate", "400/s", "--window", "100", "--garbage", "1%", "--late", "0", "--losses", "0")
"""Some 1 200 lines in three seconds."""


class RegionStage:
    """Topics and queues of one test. The topics are created with the first overrides that name kafka."""

    def __init__(
        self,
        kafka: KafkaServer | None,
        artemis: ArtemisServer | None,
        fresh_name: Callable[[str], str],
        mqtt: ArtemisServer | MosquittoServer | None = None,
    ) -> None:
        """`mqtt` is the broker of a sink mqtt; None: Artemis."""
        self._kafka = kafka
        self._artemis = artemis
        self._mqtt = mqtt or artemis
        self._fresh_name = fresh_name
        self._feeding: subprocess.Popen[bytes]
        self._load: tuple[str, ...] = ()
        self._seeds = count(1)
        self._topics: dict[str, str] = {}

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
        if "mqtt" in sinks:
            found += self._to_mqtt()
        if "xms" in sinks:
            found += self._to_xms()
        return found

    def _on_kafka(self) -> list[str]:
        assert self._kafka is not None
        self._topics = topics = {name: self._fresh_name(name) for name in ("in", "out", "dead")}
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
        assert self._artemis is not None
        queue, url = self._fresh_name("in"), self._artemis.url
        parts = ", ".join(f'{{ queue = {queue}, selector = "part = {number}" }}' for number in range(PARTITIONS))
        queues = ", ".join(f"{name}.queue = {self._fresh_name(name)}" for name in ("notifications", "dead-letters", "markers"))
        return [
            f'{INGRESS}.jms {{ url = "{url}", partitions = [{parts}] }}',
            f'{NOTIFICATION}.jms {{ url = "{url}", {queues} }}',
        ]

    def _to_mqtt(self) -> list[str]:
        """The subscriptions with which the output is compared have their names from the namespace."""
        assert self._mqtt is not None
        topics = ", ".join(f"{name}.topic = {self._fresh_name(name)}" for name in ("notifications", "dead-letters"))
        return [
            f'{NOTIFICATION}.mqtt {{ url = "{self._mqtt.mqtt_url}", {topics} }}',
            f"{NOTIFICATION}.storage.namespace={self._fresh_name('namespace')}",
        ]

    def _to_xms(self) -> list[str]:
        assert self._artemis is not None
        queues = ", ".join(f"{name}.queue = {self._fresh_name(name)}" for name in ("notifications", "dead-letters"))
        return [f'{NOTIFICATION}.xms {{ url = "{self._artemis.url}", {queues} }}']

    def limit_topics(self, most: int) -> None:
        """Let the topics of the output take records of that many bytes at most."""
        assert self._kafka is not None
        limit = {"max.message.bytes": str(most)}
        with self._kafka.admin() as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self._topics[name], limit) for name in ("out", "dead")])

    def begin_feeding(self, daemon: Daemon, *more: str) -> None:
        """Start the service, and simulate beside it. `more` are further arguments of the simulation."""
        daemon.start()
        self._load = ("--partitions", str(PARTITIONS), *LOAD, *more)
        self._feed(daemon)
        expected = daemon.service.run_directory / "expected.jsonl"
        wait_until(lambda: expected.exists() or not self._is_feeding(daemon), "the simulation begins")

    def kill_workers(self, daemon: Daemon, chance: Random) -> None:
        """Kill the worker at random instants while envelopes are written, three times at most and once at least."""
        for kills in range(3):
            pause_at_random(chance, 0.2, 1.2)
            if kills and not self._is_feeding(daemon):
                return
            self._feed_on(daemon)
            worker = daemon.worker
            assert worker is not None
            os.kill(worker, signal.SIGKILL)
            daemon.wait_for_another_worker(worker)

    def reset_regions(self, daemon: Daemon, chance: Random) -> None:
        """Reset the region at random instants while envelopes are written, as an operator does: three times."""
        for _ in range(3):
            pause_at_random(chance, 0.1, 0.5)
            self._feed_on(daemon)
            wait_until(lambda: daemon.service.verb("region", "reset", "--force").returncode == 0, "the region is reset")

    def kill_broker(self, daemon: Daemon, broker: Server, chance: Random) -> None:
        """Kill a broker at a random instant while envelopes are written, and start it again."""
        pause_at_random(chance, 0.5, 2)
        self._feed_on(daemon)
        broker.kill()
        pause_at_random(chance, 0.1, 1)
        broker.start()

    def expect_every_promise_held(self, daemon: Daemon, *sinks: str) -> None:
        """Wait until all output has come, stop the service, and compare each sink once more."""
        verb = daemon.service.verb
        wait_until(lambda: not self._is_feeding(daemon), "everything is written")
        for sink in sinks:
            followed = verb("verify", "--follow", "--give-up-after", "60s", "--sink", sink)
            assert "every promise was held" in followed.stdout, followed.stdout + followed.stderr
        assert verb("stop").returncode == 0
        for sink in sinks:
            verified = verb("verify", "--sink", sink)
            assert "every promise was held" in verified.stdout, verified.stdout + verified.stderr

    def _feed(self, daemon: Daemon) -> None:
        self._feeding = daemon.service.begin_verb("simulate", "--seed", str(next(self._seeds)), *self._load)

    def _feed_on(self, daemon: Daemon) -> None:
        """Simulate once more if everything was written before the strike, as on a busy machine."""
        if not self._is_feeding(daemon):
            self._feed(daemon)

    def _is_feeding(self, daemon: Daemon) -> bool:
        assert self._feeding.poll() in (None, 0), (daemon.service.directory / "simulate.log").read_text()
        return self._feeding.poll() is None
