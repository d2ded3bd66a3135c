"""Operators give orders while workers are killed: each order is executed once, and has one outcome."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from harness.processes.operated_daemon import Daemon
from harness.processes.operated_service import (
    INGRESS,
    NOTIFICATION,
    RESEQUENCER,
    OperatedService,
    envelope_line,
    kafka_overrides,
)
from harness.waiting import pause_at_random, wait_until

from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.orders import OrderFiles
from notification_service.status.report import State
from resequencer.clock import instant_of
from resequencer.order import Order, OrderKind
from resequencer.record import Partition

if TYPE_CHECKING:
    from servers.infinispan import InfinispanServer
    from servers.kafka import KafkaServer
    from servers.redis import RedisServer

pytestmark = pytest.mark.slow

TOPIC = "IPF_PROCESSING_DATA"
ORDERS = (f"{NOTIFICATION}.orders.enabled=true", f"{RESEQUENCER}.stash-timeout=1h")
HOUR = 3_600_000
_UNITS = 40
_RESULTS = {
    OrderKind.RELEASE: "done",
    OrderKind.SKIP: "done",
    OrderKind.HOLD: "held-until-resumed",
    OrderKind.RESUME: "done",
    OrderKind.EXTEND: "done",
    OrderKind.DEAD_LETTER: "done",
    OrderKind.RETRY: "refused-impossible",
}


def _waiting(service: OperatedService, *which: str) -> dict[str, Any]:
    listed = service.verb("units", "list", "--json", "--limit", "1000", *which)
    return {each["unit"]: each for each in map(json.loads, listed.stdout.splitlines())}


def _give_to_each(service: OperatedService, units: Mapping[str, Any], now: int) -> dict[str, Order]:
    """Give each waiting unit an order; a held one is also resumed. Return the orders by their ids."""
    book = OrderFiles(service.run_directory / "orders", service.out_directory, SystemFiles())
    kinds = (OrderKind.RELEASE, OrderKind.SKIP, OrderKind.HOLD, OrderKind.EXTEND, OrderKind.DEAD_LETTER, OrderKind.RETRY)
    offsets = {each["unit"]: each["at"] for each in _stashed(service)}
    given: dict[str, Order] = {}
    for at, (unit, wait) in enumerate(sorted(units.items())):
        kind = kinds[at % len(kinds)]
        what = {
            "waits_for": wait["waits_for"],
            "since": instant_of(wait["since"]),
            "for_ms": HOUR,
            "until": now + HOUR,
            "position": offsets[unit],
        }
        partition = Partition.find(wait["partition"])
        assert partition is not None
        for each in (kind, OrderKind.RESUME) if kind is OrderKind.HOLD else (kind,):
            order = Order(id=f"{each.value}-{unit}", kind=each, by="anna", because="a test", at=now, unit=unit, **what)
            book.append(partition, order)
            given[order.id] = order
    return given


def _stashed(service: OperatedService) -> Iterator[dict[str, Any]]:
    """Yield where each unit's envelope lies: the byte at which its line begins."""
    for file in sorted(service.in_directory.glob("partition-*.jsonl")):
        at = 0
        for line in file.read_bytes().splitlines(keepends=True):
            yield {"unit": json.loads(line)["key"], "at": at}
            at += len(line)


def _outcomes(service: OperatedService) -> list[dict[str, Any]]:
    file = service.out_directory / "orders.jsonl"
    return [json.loads(line)["value"] for line in file.read_bytes().split(b"\n")[:-1]] if file.exists() else []


def _check(service: OperatedService, given: Mapping[str, Order]) -> None:
    outcomes = _outcomes(service)
    assert Counter(each["order"]["id"] for each in outcomes) == Counter(dict.fromkeys(given, 1))
    found = {each["order"]["id"]: each["result"] for each in outcomes}
    assert found == {name: _RESULTS[order.kind] for name, order in given.items()}
    kinds = {order.unit: order.kind for order in given.values() if order.kind is not OrderKind.RESUME}
    counts = Counter(each["key"] for each in service.notifications())
    assert counts == {unit: 1 for unit, kind in kinds.items() if kind in (OrderKind.RELEASE, OrderKind.SKIP)}
    assert all(each["headers"]["released-by"] == "operator" for each in service.notifications())
    dead_letters = Counter(each["key"] for each in service.dead_letters())
    assert dead_letters == {unit: 1 for unit, kind in kinds.items() if kind is OrderKind.DEAD_LETTER}
    assert all(each["headers"]["dead-letter-reason"] == "ordered" for each in service.dead_letters())


def _play(service: OperatedService, chance: Random) -> None:
    """Let an envelope of each unit wait, then give orders while the worker is killed again and again."""
    for unit in range(_UNITS):
        service.append(envelope_line(f"unit-{unit:02}", 2), partition=unit % 2)
    service.start_and_wait()
    wait_until(lambda: len(_waiting(service)) == _UNITS, "all wait")
    waits = list(_waiting(service).items())
    given: dict[str, Order] = {}
    chance.shuffle(waits)
    for begin in range(0, _UNITS, 10):
        given |= _give_to_each(service, dict(waits[begin : begin + 10]), instant_of(waits[0][1]["since"]))
        wanted = len(_outcomes(service)) + chance.randrange(1, 6)
        wait_until(lambda wanted=wanted: len(_outcomes(service)) >= wanted, "some are executed")
        service.kill()
        service.start()
    wait_until(lambda: len(_outcomes(service)) >= len(given), "each has an outcome")
    service.wait_for_report(lambda report: report.state == State.READY, "it is ready")
    assert service.stop() == 0
    _check(service, given)


def test_orders_on_files_and_sqlite_while_the_worker_is_killed(new_service: Callable[..., OperatedService]) -> None:
    _play(new_service(*ORDERS, f"{INGRESS}.batch-size=5"), Random(1))


@pytest.mark.nightly("processes")
@pytest.mark.parametrize("server", ["redis_server", "infinispan"])
def test_orders_on_a_server_while_the_worker_is_killed(
    server: str, request: pytest.FixtureRequest, service_on: Callable[..., OperatedService], fresh_name: Callable[[str], str]
) -> None:
    running: RedisServer | InfinispanServer = request.getfixturevalue(server)
    namespace = f"{NOTIFICATION}.storage.namespace={fresh_name('orders')}"
    _play(service_on(running, namespace, *ORDERS), Random(2))


@pytest.fixture
def on_kafka(kafka: KafkaServer, redis_server: RedisServer, fresh_name: Callable[[str], str], tmp_path: Path) -> Iterator[Daemon]:
    """Two workers on Kafka with Redis, and orders."""
    name = fresh_name("ordered")
    topics = [f"{name}-{each}" for each in ("in", "out", "dead", "orders", "outcomes")]
    kafka.create_topics(*topics, partitions=2)
    service = OperatedService(
        tmp_path,
        *kafka_overrides(kafka.bootstrap, *topics[:3], group=name),
        f"{NOTIFICATION}.orders.topic={topics[3]}",
        f"{NOTIFICATION}.orders.outcomes-topic={topics[4]}",
        f"{NOTIFICATION}.worker.count=2",
        f"{NOTIFICATION}.storage.namespace={name}",
        f'{NOTIFICATION}.storage.redis.url="{redis_server.url}"',
        f"{RESEQUENCER}.storage-type=redis",
        *ORDERS,
    )
    daemon = Daemon(service)
    yield daemon
    service.verb("stop")
    service.clear_away()


def test_a_release_and_a_skip_amid_traffic_are_executed(on_kafka: Daemon) -> None:
    """At any instant some record is unread. An order waits for those alone that were there when its owner read it."""
    service = on_kafka.service
    on_kafka.start()
    load = (
        "--units",
        "2000",
        "--rate",
        "120/s",
        "--window",
        "20",
        "--losses",
        "2%",
        "--late",
        "0",
        "--garbage",
        "0",
        "--seed",
        "5",
    )
    feeding = service.begin_verb("simulate", *load)
    ordered: list[str] = []
    for verb in ("release", "skip"):
        missing = wait_until(lambda: sorted(_waiting(service, "--older-than", "2s").keys() - {*ordered}), "a unit misses one")
        ordered.append(missing[0])
        answered = service.verb("units", verb, missing[0], "--because", "a test")
        assert (answered.returncode, answered.stdout.partition(":")[0]) == (0, "done"), answered.stdout
        assert feeding.poll() is None, "the traffic lasts longer"
    feeding.terminate()


def test_orders_on_kafka_with_redis_while_workers_are_killed(on_kafka: Daemon) -> None:
    service = on_kafka.service
    on_kafka.start()
    simulated = service.verb("simulate", "--units", "5", "--losses", "30%", "--late", "0", "--seed", "3")
    assert simulated.returncode == 0, simulated.stderr
    wait_until(lambda: len(_waiting(service)) >= 3, "some wait for what is lost")
    waiting = sorted(_waiting(service))[:3]
    chance = Random(4)
    for unit, verb in zip(waiting, ("release", "skip", "release"), strict=True):
        giving = service.begin_verb("units", verb, unit, "--because", "a test", "--despite-backlog", "--wait", "5")
        pause_at_random(chance, 0.5, 3)
        # One kill for each order: ten exits within a minute would end a worker's slot
        # (notification_service/supervision/exit_rules.py).
        worker = on_kafka.find_worker(chance.randrange(2))
        if worker is not None:
            with suppress(ProcessLookupError):  # It has just ended.
                os.kill(worker, signal.SIGKILL)
        giving.wait()
    listed = lambda: [json.loads(each) for each in service.verb("orders", "--json").stdout.splitlines()]  # noqa: E731
    wait_until(lambda: all(each["result"] is not None for each in listed()), "each has an outcome", look_seconds=1)
    orders = listed()
    assert sorted(each["unit"] for each in orders) == waiting
    assert {each["result"] for each in orders} <= {"done", "refused-changed"}
    assert "done" in {each["result"] for each in orders}
    while rest := sorted(_waiting(service)):
        for unit in rest:
            service.verb("units", "release", unit, "--because", "a test", "--despite-backlog")
        wait_until(lambda: all(each["result"] is not None for each in listed()), "each has an outcome", look_seconds=1)
    verdict = json.loads(service.verb("verify", "--json").stdout)
    assert verdict["good"], verdict
    counted = verdict["orders"]
    assert counted["given"] == counted["done"] + counted["refused"] == len(listed())
    assert verdict["incomplete"] > 0
