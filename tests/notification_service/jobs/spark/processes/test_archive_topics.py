"""`resequencer archive-topics` as an operator runs it: killed repeatedly under load, started twice, stopped by SIGTERM.

`KILLS=20` kills more often than by default, `SEARCH_SEED=N` at other moments.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest
from harness.nightly import SEED
from harness.processes.operated_service import INGRESS, NOTIFICATION, OperatedService
from harness.spark.archived_topics import ArchivedTopics
from harness.spark.options import fast_sources
from harness.waiting import pause_at_random, wait_until
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

BATCH = 400
KILLS = int(os.environ.get("KILLS", "1"))
LONGEST_WAIT_SECONDS = 600


@pytest.fixture
def topics(spark: SparkSession, kafka: KafkaServer, tmp_path: Path) -> Iterator[ArchivedTopics]:
    stage = KafkaStage(kafka)
    yield ArchivedTopics(spark, stage, str(tmp_path / "run" / "service" / "records"))
    stage.close()


@pytest.fixture
def service(topics: ArchivedTopics, tmp_path: Path) -> Iterator[OperatedService]:
    """A service whose archiver makes small batches, on a Spark that compiles nothing."""
    fast_sources(tmp_path)
    names, clients = topics.stage.topics, f'{{ bootstrap.servers = "{topics.stage.bootstrap}", group.id = {topics.stage.group} }}'
    (tmp_path / "service.conf").write_text(f"""
        {INGRESS} {{ transport = kafka, kafka.consumer {{ topic = {names.input}, kafka-clients {clients} }} }}
        {NOTIFICATION} {{
          transport = kafka, kafka.producer.topic = {names.notifications}, dead-letters.topic = {names.dead_letters}
          lookups.sources = "fast.conf", archive {{ every = 1s, batch-size = {BATCH} }}
        }}
    """)
    made = OperatedService(tmp_path, config="service.conf")
    yield made
    made.clear_away()


class Load(Thread):
    """Sends records to all topics until `end`, in transactions; every third transaction is aborted.

    It waits while the archive is three batches behind: what is to be archived at the end must not grow with a slow machine.
    """

    def __init__(self, topics: ArchivedTopics) -> None:
        super().__init__(daemon=True)
        self._stage = topics.stage
        self._batches = Path(topics.location) / "batches"
        self._is_over = Event()

    def run(self) -> None:
        number, topics = 0, tuple(self._stage.topics.all)
        with closing(KafkaProducer(bootstrap_servers=self._stage.bootstrap, transactional_id=self._stage.group)) as producer:
            producer.init_transactions()
            while not self._is_over.wait(0.02):
                committed = (number - number // 3) * len(topics)
                if committed > BATCH * (_count(self._batches) + 3):
                    continue
                producer.begin_transaction()
                for topic in topics:
                    producer.send(topic, b"%d" % number, b"k", [("n", b"%d" % number)], number % 2)
                producer.flush()
                number += 1
                (producer.abort_transaction if number % 3 == 0 else producer.commit_transaction)()

    def end(self) -> None:
        self._is_over.set()
        self.join(LONGEST_WAIT_SECONDS)


@pytest.mark.nightly("jobs")
def test_whenever_it_is_killed_the_archive_is_what_the_topics_are(topics: ArchivedTopics, service: OperatedService) -> None:
    batches = Path(topics.location) / "batches"
    chance, load = random.Random(SEED), Load(topics)
    load.start()
    for _ in range(KILLS):
        known = _count(batches)
        archiving = service.begin_verb("archive-topics", "--continuous")
        wait_until(lambda known=known: _count(batches) > known, "another batch", LONGEST_WAIT_SECONDS, 0.05)  # type: ignore[misc]
        pause_at_random(chance, 0, 3)
        archiving.kill()
        archiving.wait()

    known = _count(batches)
    archiving = service.begin_verb("archive-topics", "--continuous")
    wait_until(lambda: _count(batches) > known, "another batch", LONGEST_WAIT_SECONDS, 0.05)
    second = service.verb("archive-topics", seconds=LONGEST_WAIT_SECONDS)
    assert (second.returncode, "another process archives into it" in second.stderr) == (1, True), second.stderr
    archiving.send_signal(signal.SIGTERM)
    assert archiving.wait(LONGEST_WAIT_SECONDS) == 0

    load.end()
    ended = service.verb("archive-topics", seconds=LONGEST_WAIT_SECONDS)
    assert (ended.returncode, ended.stderr.splitlines()) == (0, ["Starting Spark (local[*])"])
    assert f"{topics.stage.topics.input}: archived up to 0: " in ended.stdout
    topics.assert_archived()


def _count(batches: Path) -> int:
    return len(list(batches.glob("batch=*")))
