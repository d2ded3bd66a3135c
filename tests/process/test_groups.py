"""The payments of messages as an operator has them: counted beside the service, shown, closed, verified."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import NOTIFICATION, RESEQUENCER, OperatedService, kafka_overrides
from harness.waiting import wait_until

from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow

ENABLED = f"{NOTIFICATION}.aggregation.enabled=true"
Naming = Callable[[str], str]


def groups(service: OperatedService, *arguments: str) -> list[dict]:
    shown = service.verb("groups", *arguments, "--json")
    assert shown.returncode == 0, shown.stderr
    return [json.loads(line) for line in shown.stdout.splitlines()]


def simulate(service: OperatedService, *more: str, units: int = 70) -> None:
    simulated = service.verb("simulate", "--units", str(units), "--seed", "4", "--garbage", "0", "--late", "0", *more)
    assert simulated.returncode == 0, simulated.stderr


def test_groups_in_files_are_counted_beside_the_service_and_verified(new_daemon: Callable[..., Daemon]) -> None:
    daemon = new_daemon(ENABLED, f"{RESEQUENCER}.stash-timeout=1s")
    service = daemon.service
    assert service.verb("check", "--connect").returncode == 0
    daemon.start()
    simulate(service, "--losses", "2%")
    followed = service.verb("verify", "--follow", "--give-up-after", "60s")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert "30 messages: " in followed.stdout
    open_ones, complete = (groups(service, "list", "--state", each) for each in ("open", "complete"))
    assert len(open_ones) + len(complete) == 30
    assert open_ones
    key = open_ones[0]["key"]
    closed = service.verb("groups", "close", key, "--because", "a test")
    assert closed.returncode == 0, closed.stdout + closed.stderr
    assert groups(service, "show", key)[0]["state"] == "closed"
    assert "store payments: " in service.verb("status").stdout
    assert service.verb("stop").returncode == 0
    verified = service.verb("verify")
    assert "every promise was held" in verified.stdout, verified.stdout
    _tamper(service.run_directory / "groups" / "payments" / "completions.jsonl")
    verified = service.verb("verify", "--json")
    assert verified.returncode == 1
    assert json.loads(verified.stdout)["counts"]["group report missing"] == 1


def _tamper(reports: Path) -> None:
    reports.write_bytes(b"".join(reports.read_bytes().splitlines(keepends=True)[1:]))


@pytest.fixture
def on_kafka(kafka: KafkaServer, fresh_name: Naming) -> tuple[str, ...]:
    """Overrides for topics, groups and values of the test's own."""
    topics = [fresh_name(each) for each in ("in", "out", "dead", "facts", "reports", "group-dead")]
    kafka.create_topics(*topics, partitions=4)
    of_groups = dict(zip(("facts", "reports", "dead-letters"), topics[3:], strict=True)) | {"values": fresh_name("values")}
    return (
        *kafka_overrides(kafka.bootstrap, *topics[:3], fresh_name("group")),
        ENABLED,
        *(f"{NOTIFICATION}.aggregation.{name}.topic={topic}" for name, topic in of_groups.items()),
        f"{NOTIFICATION}.aggregation.worker.count=2",
        f"{NOTIFICATION}.storage.namespace={fresh_name('namespace')}",
        f"{RESEQUENCER}.stash-timeout=1s",
    )


def test_groups_on_topics_are_counted_by_two_workers_and_verified(
    new_daemon: Callable[..., Daemon], on_kafka: tuple[str, ...]
) -> None:
    daemon = new_daemon(*on_kafka)
    service = daemon.service
    checked = service.verb("check", "--connect")
    assert checked.returncode == 0, checked.stderr
    daemon.start()
    simulate(service, "--losses", "1%", units=140)
    followed = service.verb("verify", "--follow", "--give-up-after", "60s")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert "60 messages: " in followed.stdout
    open_ones = groups(service, "list", "--state", "open")
    assert open_ones
    assert service.verb("groups", "close", open_ones[0]["key"], "--because", "a test").returncode == 0
    wait_until(lambda: "every promise was held" in service.verb("verify").stdout, "the closed group is no deviation")
    assert service.verb("check", "--connect").returncode == 0
    assert service.verb("stop").returncode == 0
