"""The service on Kafka as an operator has it: checked, started, fed, killed, verified, stopped."""

import os
import signal
from collections.abc import Callable

import pytest
from operated_daemon import Daemon

from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow

INGRESS, NOTIFICATION = "ipf.processing-data.ingress", "payment-status-notification"
CLIENTS = f"{INGRESS}.kafka.consumer.kafka-clients"
Naming = Callable[[str], str]


@pytest.fixture
def on_kafka(kafka: KafkaServer, fresh_name: Naming) -> list[str]:
    """Overrides for topics and a group of one's own."""
    source, output, dead = fresh_name("in"), fresh_name("out"), fresh_name("dead")
    kafka.create_topics(source, output, dead, partitions=4)
    return [
        f"{INGRESS}.transport=kafka",
        f"{NOTIFICATION}.transport=kafka",
        f"{INGRESS}.kafka.consumer.topic={source}",
        f"{NOTIFICATION}.kafka.producer.topic={output}",
        f"{NOTIFICATION}.dead-letters.topic={dead}",
        f'{CLIENTS} {{ bootstrap.servers = "{kafka.bootstrap}", group.id = {fresh_name("group")} }}',
    ]


def test_every_promise_holds_though_the_worker_is_killed(new_daemon: Callable[..., Daemon], on_kafka: list[str]) -> None:
    daemon = new_daemon(*on_kafka)
    verb = daemon.service.verb
    assert verb("check", "--connect").returncode == 0
    daemon.start()
    for seed in range(3):
        simulated = verb("simulate", "--units", "300", "--garbage", "2%", "--seed", str(seed), "--late", "0", "--losses", "0")
        assert simulated.returncode == 0, simulated.stderr
        worker = daemon.worker
        assert worker is not None
        os.kill(worker, signal.SIGKILL)
        daemon.wait_for_another_worker(worker)
    followed = verb("verify", "--follow", "--patience", "60s")
    assert "every promise was held" in followed.stdout, followed.stdout + followed.stderr
    assert verb("stop").returncode == 0
    assert "every promise was held" in verb("verify").stdout


def test_check_connect_tells_of_a_topic_that_is_missing_and_of_brokers_that_are_away(
    new_daemon: Callable[..., Daemon], on_kafka: list[str]
) -> None:
    mistyped = new_daemon(*on_kafka, f"{NOTIFICATION}.kafka.producer.topic=mistyped").service.verb("check", "--connect")
    assert (mistyped.returncode, mistyped.stderr) == (4, "resequencer: topic mistyped: the brokers do not know it\n")
    away = new_daemon(*on_kafka, f'{CLIENTS}.bootstrap.servers="127.0.0.1:1"', f"{CLIENTS}.default.api.timeout.ms=1000")
    checked = away.service.verb("check", "--connect")
    assert checked.returncode == 4
    assert checked.stderr.startswith("resequencer: the brokers: KafkaConnectionError")
