"""Delivery straight from topics as processes, killed and rebalanced while they work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from signal import SIGCONT, SIGSTOP
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from harness.processes.command import run_here
from harness.scripted_receiver import OK, Reply, ScriptedReceiver, scripted_receiver
from harness.waiting import pause_at_random, wait_until

if TYPE_CHECKING:
    from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[4]
KEYS, EACH, PARTITIONS = 40, 30, 4
SEED = 7


class DirectProcesses:
    """A topic, a configuration with one receiver `r` of it, and the workers that a test starts and kills."""

    def __init__(self, kafka: KafkaServer, directory: Path, url: str, keys: str) -> None:
        name = uuid4().hex[:8]
        self._kafka, self.topic, self.group = kafka, f"source-{name}", f"group-{name}"
        kafka.create_topics(self.topic, partitions=PARTITIONS)
        self.configuration = directory / "service.conf"
        self.configuration.write_text(f"""
            include "{ROOT}/conf/application.conf"
            ipf.processing-data.ingress.transport = kafka
            ipf.processing-data.ingress.kafka.consumer.kafka-clients {{
              bootstrap.servers = "{kafka.bootstrap}", group.id = service-{name}
              session.timeout.ms = 6000, heartbeat.interval.ms = 300
            }}
            payment-status-notification {{
              transport = kafka
              run-directory = "{directory}/run"
              delivery.receivers.r {{
                url = "{url}", topic = {self.topic}, group = {self.group}, timeout = 3s
                suspension {{ probe = 100ms, most = 500ms }}
                {keys}
              }}
            }}
        """)
        self.workers: list[subprocess.Popen[bytes]] = []
        self.log_path = directory / "log"
        self._log = self.log_path.open("wb")

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "notification_service", "delivery", "run", "--config", str(self.configuration)]
        self.workers.append(subprocess.Popen(command, cwd=ROOT, stdout=self._log, stderr=self._log))
        return self.workers[-1]

    def run(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_here(ROOT, [verb, arguments[0], "--config", str(self.configuration), *arguments[1:]])

    def send(self, partition: int | None = None) -> list[tuple[str, str]]:
        """Send the records of all keys in turn; return the pairs of key and id."""
        from kafka import KafkaProducer

        pairs = [(f"k{key}", f"k{key}-{number}") for number in range(EACH) for key in range(KEYS)]
        with closing(KafkaProducer(bootstrap_servers=self._kafka.bootstrap)) as producer:
            for key, id_ in pairs:
                producer.send(self.topic, b"{}", key.encode(), [("notification-id", id_.encode())], partition)
            producer.flush()
        return pairs

    def dead_letters(self) -> list[str]:
        """Return the id of each dead letter."""
        from kafka import KafkaConsumer, TopicPartition

        options: dict[str, Any] = {
            "isolation_level": "read_committed",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
        }
        with closing(KafkaConsumer(bootstrap_servers=self._kafka.bootstrap, **options)) as reader:
            names = [TopicPartition(f"{self.topic}-{self.group}-dlq", number) for number in range(PARTITIONS)]
            reader.assign(names)
            reader.seek_to_beginning()
            ends, found = reader.end_offsets(names), []
            while any(reader.position(name) < end for name, end in ends.items()):
                for records in reader.poll(timeout_ms=200).values():
                    found += [dict(each.headers)["notification-id"].decode() for each in records]
            return found

    def close(self) -> None:
        for each in self.workers:
            each.kill()
            each.wait()
        self._log.close()


@pytest.fixture
def receiving() -> Iterator[ScriptedReceiver]:
    with scripted_receiver() as receiver:
        yield receiver


@pytest.fixture
def processes(kafka: KafkaServer, tmp_path: Path, receiving: ScriptedReceiver) -> Iterator[Callable[[str], DirectProcesses]]:
    made: list[DirectProcesses] = []

    def make(keys: str) -> DirectProcesses:
        made.append(DirectProcesses(kafka, tmp_path, receiving.url, keys))
        return made[-1]

    yield make
    for each in made:
        each.close()


def kill_and_join(direct: DirectProcesses, receiving: ScriptedReceiver, chance: Random, times: int) -> None:
    """Kill a worker at a random moment, or let another one join, so often."""
    direct.start()
    for number in range(times):
        before = len(receiving.calls)
        wait_until(lambda before=before: len(receiving.calls) > before + 20, "some calls")
        pause_at_random(chance, 0, 1)
        running = [each for each in direct.workers if each.poll() is None]
        if number % 3 == 1 or len(running) == 1:
            direct.start()
        victim = chance.choice(running)
        victim.kill() if number % 2 else victim.terminate()
        victim.wait()
    direct.start()


@pytest.mark.nightly("delivery")
def test_blocking_loses_nothing_and_keeps_each_keys_order_under_kills_and_rebalances(
    processes: Callable[[str], DirectProcesses], receiving: ScriptedReceiver
) -> None:
    chance = Random(SEED)
    faults = {f"k{key}-{number}": chance.choice([500, 500, 503]) for key in range(0, KEYS, 3) for number in range(0, EACH, 7)}
    receiving.answers = lambda _key, id_, nth: (
        Reply(faults[id_], after_seconds=0.05) if id_ in faults and nth < 3 else Reply(201, after_seconds=0.05)
    )
    direct = processes("policy = blocking, concurrency = 3, retry { first = 100ms, factor = 1, attempts = null }")
    pairs = direct.send()
    kill_and_join(direct, receiving, chance, 6)
    wait_until(lambda: len(set(receiving.taken)) == len(pairs), "all")
    for key in range(KEYS):
        assert receiving.ids(f"k{key}") == [f"k{key}-{number}" for number in range(EACH)]
    assert direct.dead_letters() == []
    repeats = len(receiving.taken) - len(pairs)
    assert repeats < 6 * 3 * 20, "only what was called since the last commit is called again"


@pytest.mark.nightly("delivery")
def test_retry_topics_lose_nothing_between_topics_under_kills_and_rebalances(
    processes: Callable[[str], DirectProcesses], receiving: ScriptedReceiver
) -> None:
    chance = Random(SEED)
    lost = {f"k{key}-{number}" for key in range(0, KEYS, 5) for number in range(0, EACH, 9)}
    late = {f"k{key}-{number}" for key in range(1, KEYS, 4) for number in range(0, EACH, 5)}
    slow = Reply(201, after_seconds=0.03)
    receiving.answers = lambda _key, id_, nth: Reply(500) if id_ in lost or (id_ in late and nth < 2) else slow
    direct = processes(
        "policy = retry-topics, concurrency = 3, retry-topics.intervals = [500ms, 1s]",
    )
    pairs = direct.send()
    kill_and_join(direct, receiving, chance, 4)
    wanted = {pair for pair in pairs if pair[1] not in lost}
    wait_until(lambda: set(receiving.taken) == wanted, "all that is taken")
    wait_until(lambda: sorted(set(direct.dead_letters())) == sorted(lost), "the dead letters", look_seconds=1)
    assert sorted(direct.dead_letters()) == sorted(lost), "each once"


def test_blocking_then_retry_topics_loses_nothing_and_has_each_record_once_in_one_place_under_kills(
    processes: Callable[[str], DirectProcesses], receiving: ScriptedReceiver
) -> None:
    chance = Random(SEED)
    lost = {f"k{key}-{number}" for key in range(0, KEYS, 8) for number in range(0, EACH, 10)}
    late = {f"k{key}-{number}" for key in range(1, KEYS, 4) for number in range(0, EACH, 6)}
    slow = Reply(201, after_seconds=0.03)
    receiving.answers = lambda _key, id_, nth: Reply(500) if id_ in lost or (id_ in late and nth < 4) else slow
    direct = processes(
        "policy = blocking-then-retry-topics, concurrency = 3, retry-topics.intervals = [1s, 1s]\n"
        "retry { first = 50ms, factor = 1, attempts = 2 }",
    )
    pairs = direct.send()
    kill_and_join(direct, receiving, chance, 4)
    wanted = {pair for pair in pairs if pair[1] not in lost}
    wait_until(lambda: set(receiving.taken) == wanted, "all that is taken")
    wait_until(lambda: sorted(set(direct.dead_letters())) == sorted(lost), "the dead letters", look_seconds=1)
    assert sorted(direct.dead_letters()) == sorted(lost), "each once"


@pytest.mark.nightly("delivery")
def test_a_worker_that_was_stopped_beyond_its_session_begins_no_calls_of_what_another_owns(
    processes: Callable[[str], DirectProcesses], receiving: ScriptedReceiver
) -> None:
    receiving.answers = lambda _key, _id, _nth: Reply(201, after_seconds=0.05)
    direct = processes("policy = blocking, concurrency = 3")
    first = direct.start()
    pairs = direct.send()
    wait_until(lambda: len(receiving.taken) > 50, "some calls")
    first.send_signal(SIGSTOP)
    direct.start()
    # It owns nothing before the session of the first one is over, and then all.
    wait_until(lambda: len(set(receiving.taken)) > 400, "the calls of the new owner")
    first.send_signal(SIGCONT)
    wait_until(lambda: len(set(receiving.taken)) == len(pairs), "all")
    for key in range(KEYS):
        assert receiving.ids(f"k{key}") == [f"k{key}-{number}" for number in range(EACH)]
    # Those of three calls at once, since the last commit of the first one, and those that the second gives back to it.
    assert len(receiving.taken) - len(pairs) < 60


def test_what_the_commands_say(processes: Callable[[str], DirectProcesses], receiving: ScriptedReceiver) -> None:
    is_ill = True
    receiving.answers = lambda _key, id_, _nth: Reply(500) if is_ill and id_ == "k0-0" else OK
    direct = processes("policy = blocking, retry { first = 100ms, factor = 1, attempts = null }")
    place, because = f"{direct.topic}-0", ("--because", "it is ill")

    def ordered(*arguments: str) -> tuple[int, str]:
        found = direct.run("delivery", *arguments, *because)
        return found.returncode, found.stderr.removeprefix("resequencer: ").rstrip()

    assert ordered("skip-all", "x", place) == (1, "no receiver x is delivered to straight from a topic; known are: r")
    code, text = ordered("skip", "r", place)
    assert (code, "expected TOPIC-PARTITION@OFFSET" in text) == (2, True)
    direct.send(partition=0)
    direct.start()
    wait_until(lambda: len(set(receiving.taken)) == (KEYS - 1) * EACH, "what is not blocked")
    assert ordered("skip", "r", f"{place}@999999") == (1, f"{place}@999999 was not read yet, so it cannot be blocked")
    now, waits = "1 record became dead letters", "0 records became dead letters, and 1 more if the call that is under way fails"
    texts = [f"{each}; so does what fails from now on, until `block`" for each in (now, waits)]
    assert ordered("skip-all", "r", place) in [(0, text) for text in texts]
    wait_until(lambda: direct.dead_letters() == ["k0-0"], "the dead letter", look_seconds=1)
    assert ordered("skip-all", "r", place) == (1, f"what fails in {place} is skipped already")
    assert ordered("block", "r", place) == (0, f"what fails in {place} is tried again, as the policy says")
    assert ordered("block", "r", "OTHER-0") == (1, f"OTHER-0 is no partition of {direct.topic}")
    assert ordered("block", "r", f"{direct.topic}-9") == (1, f"{direct.topic}-9 does not exist")
    refused = "; ".join(f"nothing is blocked in {direct.topic}-{number}" for number in range(PARTITIONS))
    assert ordered("skip-all", "r", direct.topic) == (1, refused)
    assert ordered("pause", "r") == (0, "the receiver is paused: within seconds no worker begins a call; those under way end")
    assert ordered("resume", "r") == (0, "the receiver gets calls again")
    assert ordered("retry-now", "r") == (0, "each worker whose gate is shut calls now for its first blocked record")
    assert ordered("retry-now", "r", f"{place}@1")[0] == 1
    assert ("k0", "k0-0") not in receiving.taken
    is_ill = False
    listed = direct.run("dead-letters", "list", "--receiver", "r").stdout
    assert f"#0  new  skipped  k0  {place}@0" in listed
    assert direct.run("dead-letters", "list").returncode == 4, "the service's own dead letters are others, and have no topic here"
    requeued = direct.run("dead-letters", "requeue", listed.split()[0])
    assert requeued.stdout.strip().endswith(f"requeued, now at {direct.topic}-{direct.group}-requeued-0@0")
    wait_until(lambda: ("k0", "k0-0") in receiving.taken, "the requeued record")
    unknown = direct.run("dead-letters", "list", "--receiver", "x")
    assert (unknown.returncode, "no receiver x is delivered to" in unknown.stderr) == (1, True)
