"""`make servers`: servers for people, and for conf/local.conf."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from kafka import KafkaAdminClient

from notification_service.configuration.configuration import load
from servers.local import PORTS
from servers.redis import RedisServer
from servers.server import LOOPBACK, is_free, remove_all

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).parents[2]
KAFKA = "ipf.processing-data.ingress.kafka.consumer.kafka-clients.bootstrap.servers"
REDIS = "payment-status-notification.storage.redis.url"
LEDGER = "payment-status-notification.delivery.ledger.url"
RECEIVER = "payment-status-notification.delivery.receivers.tracker.url"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A checkout with only the configuration; its run/servers holds the servers."""
    shutil.copytree(CHECKOUT / "conf", tmp_path / "conf", ignore=shutil.ignore_patterns("__pycache__"))
    yield tmp_path
    remove_all(tmp_path / "run" / "servers")


@pytest.fixture
def redis_port_is_taken() -> Iterator[None]:
    """Take the Redis port, unless another process has it already."""
    with ExitStack() as stack:
        if is_free(PORTS["redis"]):
            stack.enter_context(socket.create_server((LOOPBACK, PORTS["redis"])))
        yield


@pytest.mark.usefixtures("redis_port_is_taken")
def test_the_servers_run_until_they_are_stopped_and_local_conf_finds_them(directory: Path) -> None:
    started = order("start", directory)
    assert started.returncode == 0, started.stderr
    servers = {line.split()[0] for line in started.stdout.splitlines()}
    assert servers == {
        "kafka",
        "redis",
        "infinispan",
        "postgresql",
        "artemis",
        "receiver",
    }
    assert "(6379 was taken)" in started.stdout
    configured = {each.path: each.value for each in load(directory / "conf" / "local.conf", []).effective}
    assert configured[REDIS].removeprefix("redis://").removesuffix("/0") in started.stdout
    for path in (LEDGER, RECEIVER):
        assert f" on {urlsplit(configured[path]).netloc.rpartition('@')[2]}" in started.stdout
    with closing(KafkaAdminClient(bootstrap_servers=configured[KAFKA])) as admin:
        topics = {each["name"]: len(each["partitions"]) for each in admin.describe_topics()}
    assert topics.items() >= dict.fromkeys(("IPF_PROCESSING_DATA", "PAYMENT_STATUS_NOTIFICATION"), 4).items()

    again = order("start", directory)
    assert again.returncode == 0
    assert again.stdout.count("was running already") == 6

    running = order("status", directory)
    assert (running.returncode, running.stdout.count(" runs on ")) == (0, 6), running.stdout
    RedisServer(directory / "run" / "servers" / "redis").kill()
    running = order("status", directory)
    assert (running.returncode, running.stdout.count(" runs on ")) == (1, 5), running.stdout
    assert "redis      does not run\n" in running.stdout
    after = order("start", directory)
    assert after.returncode == 0, after.stderr
    assert "new address" not in after.stdout
    assert {each.path: each.value for each in load(directory / "conf" / "local.conf", []).effective} == configured

    stopped = order("stop", directory)
    assert stopped.stdout == "stopped: artemis, infinispan, kafka, postgresql, receiver, redis\n"
    assert order("stop", directory).stdout == "no server runs in run/servers\n"
    assert order("status", directory).stdout.count("does not run") == 6


def test_without_java_nothing_is_started_and_the_remedy_is_said(directory: Path) -> None:
    started = order("start", directory, PATH="", JAVA_HOME="")
    assert started.returncode == 1
    assert "there is no java on PATH. Install a JDK 17 or newer" in started.stderr
    assert not (directory / "run").exists()


def order(name: str, directory: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "servers", name]
    known = os.environ | {"PYTHONPATH": str(CHECKOUT)} | environment
    return subprocess.run(command, cwd=directory, env=known, capture_output=True, text=True, timeout=300, check=False)
