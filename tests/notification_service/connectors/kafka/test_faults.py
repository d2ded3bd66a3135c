"""Exactly once and in order, while workers are killed and paused, other workers join, and the broker dies."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest
from harness.nightly import SEED
from harness.waiting import pause_at_random, wait_until
from kafka import KafkaProducer

from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow

FAULTS = int(os.environ.get("KAFKA_FAULTS", "8"))
PARTITIONS = 4
PAUSE_SECONDS = 4
"""Longer than a relay's session and transaction time-outs."""


class Relays:
    """The relay processes, by slot."""

    def __init__(self, stage: KafkaStage, log: Path) -> None:
        self._stage = stage
        self._log = log
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, slot: int) -> None:
        given = {"bootstrap": self._stage.bootstrap, "topics": self._stage.topics.all, "group": self._stage.group, "slot": slot}
        command = [sys.executable, "-m", "tests.notification_service.connectors.kafka.relay", json.dumps(given)]
        root = Path(__file__).parents[4]
        environment = os.environ | {"PYTHONPATH": f"{root}:{root / 'tests'}"}
        with self._log.open("ab") as log:
            self._running[slot] = subprocess.Popen(command, cwd=root, env=environment, stdout=log, stderr=log)

    def kill(self, slot: int) -> None:
        relay = self._running.pop(slot)
        relay.kill()
        relay.wait()

    def send(self, slot: int, number: signal.Signals) -> None:
        self._running[slot].send_signal(number)

    def ended(self) -> list[int]:
        return [slot for slot, relay in self._running.items() if relay.poll() is not None]

    def stop(self) -> None:
        for slot in [*self._running]:
            self.kill(slot)


class Source:
    """Sends numbers, a few of each key, until it is stopped."""

    def __init__(self, stage: KafkaStage) -> None:
        self.sent: list[tuple[bytes, bytes]] = []
        self._stage = stage
        self._is_stopping = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()

    def _run(self) -> None:
        options = {"delivery_timeout_ms": 120_000, "reconnect_backoff_max_ms": 500, "proxy_url": "direct://"}
        with closing(KafkaProducer(bootstrap_servers=self._stage.bootstrap, **options)) as producer:
            for number in count():
                # A steady load: records come while the faults happen, and not all before.
                if self._is_stopping.wait(0.005):
                    break
                key = b"key-%d" % (number % 17)
                producer.send(self._stage.topics.input, b"%d" % number, key)
                self.sent.append((key, b"%d" % number))
            producer.flush()


@pytest.fixture
def stage(struck_server: Callable[..., Any]) -> Iterator[KafkaStage]:
    stage = KafkaStage(struck_server(KafkaServer), PARTITIONS)
    yield stage
    stage.close()


@pytest.mark.nightly("brokers")
def test_every_record_leaves_once_and_in_order_whatever_is_killed_or_paused(stage: KafkaStage, tmp_path: Path) -> None:
    relays, chance = Relays(stage, tmp_path / "relays.log"), random.Random(SEED)
    for slot in range(3):
        relays.start(slot)
    source = Source(stage)
    try:
        for _ in range(FAULTS):
            strike(stage, relays, chance)
            pause_at_random(chance, 0.5, 3)
            assert not relays.ended(), (tmp_path / "relays.log").read_text()[-5_000:]
        source.stop()
        inputs = stage.inputs()
        wait_until(lambda: len(stage.outputs()) >= len(inputs), "all of it", look_seconds=1)
        assert not relays.ended(), (tmp_path / "relays.log").read_text()[-5_000:]
    finally:
        source.stop()
        relays.stop()
    check(stage.outputs(), inputs, source.sent)


def strike(stage: KafkaStage, relays: Relays, chance: random.Random) -> None:
    """Strike once. How long something is away or paused is a part of the fault, and so is the random moment of the next one."""
    slot = chance.randrange(3)
    fault = chance.choice(["kill", "kill", "pause", "join", "broker"])
    print(f"{monotonic():.1f} {fault} {slot}")
    if fault == "kill":
        relays.kill(slot)
        pause_at_random(chance, 0, 3)
        relays.start(slot)
    elif fault == "pause":
        relays.send(slot, signal.SIGSTOP)
        pause_at_random(chance, PAUSE_SECONDS, PAUSE_SECONDS + 1)
        relays.send(slot, signal.SIGCONT)
    elif fault == "join":
        relays.start(3)
        pause_at_random(chance, 1, 4)
        relays.kill(3)
    else:
        stage.kafka.kill()
        pause_at_random(chance, 0, 2)
        stage.kafka.start()


def check(outputs: Sequence[Any], inputs: Sequence[Any], sent: Sequence[tuple[bytes, bytes]]) -> None:
    """Check the output against the records in the input. The sender may have sent a number twice when the broker died."""
    assert {each.value for each in inputs} == {value for _, value in sent}
    assert Counter(each.value for each in outputs) == Counter(each.value for each in inputs)
    assert values_by_key(outputs) == values_by_key(inputs)


def values_by_key(records: Sequence[Any]) -> dict[bytes, list[bytes]]:
    by_key: defaultdict[bytes, list[bytes]] = defaultdict(list)
    for each in records:
        by_key[each.key].append(each.value)
    return by_key
