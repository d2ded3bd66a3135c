"""Schedules as processes: two workers and one tick, killed while they make its requests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from harness.nightly import at_night
from harness.published_lookups import publish, shaped
from harness.waiting import pause_at_random, wait_until

from notification_service.lookups.directory import LookupsDirectory

if TYPE_CHECKING:
    from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]
CUSTOMERS = 30_000
SEED = 11


class Processes:
    """Workers of one schedule that ticks each minute, and the topic of its requests."""

    def __init__(self, kafka: KafkaServer, directory: Path) -> None:
        name = uuid4().hex[:8]
        self._kafka, self.topic = kafka, f"requests-{name}"
        kafka.create_topics(self.topic, partitions=2)
        rows = {("party", f"c{number}"): [None, None, "REPORT", None, None] for number in range(CUSTOMERS)}
        publish(LookupsDirectory(directory / "lookups"), {"customers": shaped(rows)}, 4)
        self._configuration = directory / "service.conf"
        self._configuration.write_text(f"""
            include "{ROOT}/conf/application.conf"
            ipf.processing-data.ingress.transport = kafka
            ipf.processing-data.ingress.kafka.consumer.kafka-clients.bootstrap.servers = "{kafka.bootstrap}"
            payment-status-notification {{
              transport = kafka
              run-directory = "{directory}/run"
              storage.namespace = "{name}"
              lookups.directory = "{directory}/lookups"
              delivery.schedules.each-minute {{
                cron = "* * * * *", topic = {self.topic}
                keys {{ lookup = customers, kind = party, where {{ channel = REPORT }} }}
              }}
            }}
        """)
        self.workers: list[subprocess.Popen[bytes]] = []
        self._log = (directory / "log").open("wb")

    def start(self) -> None:
        command = [sys.executable, "-m", "notification_service", "delivery", "run", "--config", str(self._configuration)]
        self.workers.append(subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log))

    def requests(self) -> Iterator[dict[str, Any]]:
        """Return each request that was made."""
        from kafka import KafkaConsumer, TopicPartition

        options = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        with closing(KafkaConsumer(bootstrap_servers=self._kafka.bootstrap, **options)) as reader:
            names = [TopicPartition(self.topic, number) for number in range(2)]
            reader.assign(names)
            reader.seek_to_beginning()
            ends = reader.end_offsets(names)
            while any(reader.position(name) < end for name, end in ends.items()):
                for records in reader.poll(timeout_ms=200).values():
                    yield from (json.loads(each.value) for each in records)

    @contextmanager
    def offsets(self) -> Iterator[Callable[[], int]]:
        """Yield what counts the offsets of the topic: committed requests, and the ends of their transactions."""
        from kafka import KafkaConsumer, TopicPartition

        names = [TopicPartition(self.topic, number) for number in range(2)]
        with closing(KafkaConsumer(bootstrap_servers=self._kafka.bootstrap, isolation_level="read_committed")) as reader:
            yield lambda: sum(reader.end_offsets(names).values())

    def kill(self) -> None:
        for each in self.workers:
            each.kill()
            each.wait()
        self.workers.clear()

    def close(self) -> None:
        self.kill()
        self._log.close()


@pytest.fixture
def processes(kafka: KafkaServer, tmp_path: Path) -> Iterator[Processes]:
    made = Processes(kafka, tmp_path)
    yield made
    made.close()


def by_tick(processes: Processes) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {}
    for each in processes.requests():
        found.setdefault(each["tick"], Counter())[each["key"]] += 1
    return found


def start_and_wait(processes: Processes) -> None:
    with processes.offsets() as offsets:
        before = offsets()
        for _ in range(2):
            processes.start()
        wait_until(lambda: offsets() > before, "more requests")


@pytest.mark.parametrize("kills", at_night("schedules", 1, 4))
def test_two_workers_that_are_killed_in_the_midst_make_each_tick_once(processes: Processes, kills: int) -> None:
    chance, struck, interrupted = Random(SEED), 0, False
    # A tick is interrupted once at least: the first strikes come at once, and the others at any moment.
    while struck < kills or not interrupted:
        start_and_wait(processes)
        pause_at_random(chance, 0, 0.5 if interrupted else 0)
        processes.kill()
        struck += 1
        interrupted |= any(len(found) < CUSTOMERS for found in by_tick(processes).values())
    for _ in range(2):
        processes.start()
    # Each tick that a kill interrupted is made whole before the next one begins.
    begun = set(by_tick(processes))

    def are_whole() -> bool:
        found = by_tick(processes)
        return all(len(found[tick]) == CUSTOMERS for tick in begun)

    wait_until(are_whole, "whole ticks")
    processes.kill()
    for tick, keys in by_tick(processes).items():
        assert set(keys.values()) == {1}, tick
