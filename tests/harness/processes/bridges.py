"""The configuration of a bridge on real servers, and what is done to it under load."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from harness.processes.operated_service import envelope_line
from harness.processes.regions import RegionStage
from harness.waiting import pause_at_random, wait_until

from notification_service.connectors.line_format import Line, decode_line
from notification_service.connectors.mqtt.errors import NOT_DELIVERED
from notification_service.connectors.mqtt.messages import outgoing
from notification_service.connectors.mqtt.settings import BrokerSettings
from notification_service.connectors.optional_clients import connect_mqtt
from notification_service.status.aggregation import BridgeReport, bridge_file
from servers.artemis import ArtemisServer

if TYPE_CHECKING:
    from harness.processes.operated_daemon import Daemon

    from servers.kafka import KafkaServer
    from servers.mosquitto import MosquittoServer
    from servers.server import Server

LOAD = ("--units", "150", "--rate", "400/s", "--window", "100", "--late", "0", "--losses", "0", "--duplicates", "0.02")
"""Some 1 200 lines in three seconds."""


class BridgeStage:
    """The topics, queues and files of one test with a bridge. `broker` is that of the bridge, and of sinks other than Kafka."""

    def __init__(
        self, broker: ArtemisServer | MosquittoServer, kafka: KafkaServer | None, fresh_name: Callable[[str], str]
    ) -> None:
        self.broker = broker
        self._region = RegionStage(kafka, broker if isinstance(broker, ArtemisServer) else None, fresh_name, broker)
        self.topic, self.queue, self.client_id = map(fresh_name, ("events", "queue", "bridge"))
        self._feeding: subprocess.Popen[bytes]
        self._seeds = count(1)

    def overrides(self, source: str, start: str, *sinks: str) -> list[str]:
        """Return the overrides of a service with a bridge, with storage embedded and strategy SEQUENCE."""
        found = self._region.overrides(start, *sinks)
        found.append(f"ipf.bridge {{ enabled = true, source = {source}, start = {start} }}")
        if source == "mqtt":
            topics = f'topics = ["{self.topic}/#"]'
            return [*found, f'ipf.bridge.mqtt {{ url = "{self.broker.mqtt_url}", client-id = {self.client_id}, {topics} }}']
        return [*found, f'ipf.bridge.xms {{ url = "{self.broker.url}", queue = {self.queue} }}']

    def begin_feeding(self, daemon: Daemon) -> None:
        """Start the service, and simulate beside it. The simulator waits for the session of the bridge."""
        daemon.start()
        self._feed(daemon)
        expected = daemon.service.run_directory / "expected.jsonl"
        wait_until(lambda: expected.exists() or not self.is_feeding(daemon), "the simulation begins")

    def publish(self, *units: str) -> None:
        """Publish an envelope of each unit that leads to one notification."""
        self.publish_values(*map(_envelope, units))

    def publish_values(self, *values: bytes) -> int:
        """Publish the values one by one; return how many of them the broker keeps for the bridge."""
        connection = connect_mqtt(BrokerSettings(self.broker.mqtt_url))
        kept = 0
        for value in values:
            connection.publish(outgoing(f"{self.topic}/events", None, (), value), 1)
            kept += connection.next_confirmation().reason.value != NOT_DELIVERED
        connection.close()
        return kept

    def publish_until_kept(self, unit: str) -> None:
        """Publish an envelope of the unit once the broker has the session of the bridge."""
        wait_until(lambda: self.publish_values(_envelope(unit)), "the broker has the session", look_seconds=0.1)

    def kill_bridge(self, daemon: Daemon, chance: Random) -> None:
        """Kill the bridge at random instants while envelopes are sent: three times at most and once at least."""
        for kills in range(3):
            pause_at_random(chance, 0.2, 0.8)
            if kills and not self.is_feeding(daemon):
                return
            self._feed_on(daemon)
            report = report_of(daemon)
            assert report is not None
            if report.reported_at is not None:
                with suppress(ProcessLookupError):  # It was killed before, and the supervisor has not yet said so.
                    os.kill(report.process_id, signal.SIGKILL)

    def kill_workers(self, daemon: Daemon, chance: Random) -> None:
        """Kill the worker at random instants while envelopes are sent: twice at most and once at least."""
        for kills in range(2):
            pause_at_random(chance, 0.2, 0.8)
            if kills and not self.is_feeding(daemon):
                return
            self._feed_on(daemon)
            if (worker := daemon.find_worker(0)) is not None:
                os.kill(worker, signal.SIGKILL)

    def kill_server(self, daemon: Daemon, server: Server, chance: Random) -> None:
        """Kill a server at a random instant while envelopes are sent, and start it again."""
        pause_at_random(chance, 0.5, 1.5)
        self._feed_on(daemon)
        server.kill()
        pause_at_random(chance, 0.1, 1)
        server.start()

    def expect_every_promise_held(self, daemon: Daemon, *sinks: str) -> None:
        """Wait until all output has come, stop the service, and compare each sink once more."""
        verb = daemon.service.verb
        wait_until(lambda: not self.is_feeding(daemon), "everything is sent")
        for sink in sinks:
            followed = verb("verify", "--follow", "--give-up-after", "60s", "--sink", sink)
            assert "every promise was held" in followed.stdout, followed.stdout + followed.stderr
        assert verb("stop").returncode == 0
        for sink in sinks:
            assert "every promise was held" in verb("verify", "--sink", sink).stdout

    def _feed(self, daemon: Daemon) -> None:
        self._feeding = daemon.service.begin_verb("simulate", "--seed", str(next(self._seeds)), *LOAD)

    def _feed_on(self, daemon: Daemon) -> None:
        """Simulate once more if everything was sent before the strike, as on a busy machine."""
        if not self.is_feeding(daemon):
            self._feed(daemon)

    def is_feeding(self, daemon: Daemon) -> bool:
        assert self._feeding.poll() in (None, 0), (daemon.service.directory / "simulate.log").read_text()
        return self._feeding.poll() is None


def _envelope(unit: str) -> bytes:
    line = decode_line(envelope_line(unit, 1))
    assert isinstance(line, Line)
    return line.value


def report_of(daemon: Daemon) -> BridgeReport | None:
    """Return the last report of the daemon's bridge."""
    return bridge_file(daemon.service.run_directory).find(daemon.supervisor)
