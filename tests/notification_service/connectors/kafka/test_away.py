"""Unavailable brokers: each call ends in time with an error, leaves nothing behind, and works again later."""

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from harness.waiting import wait_until

from guardian.ports import Position, TransportUnavailable
from notification_service.connectors.kafka.sink import KafkaTransport
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.region_stage import until_done
from tests.notification_service.connectors.kafka.stage import FixedClock, KafkaStage, notification, values_of

pytestmark = pytest.mark.slow

QUICK = {"default.api.timeout.ms": 1_000}
QUICK_PRODUCER = {"transaction.timeout.ms": 2_000}


@pytest.fixture
def broker(struck_server: Callable[..., Any]) -> KafkaServer:
    server: KafkaServer = struck_server(KafkaServer)
    return server


@pytest.fixture
def stage(broker: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(broker)
    yield stage
    if broker.is_running:
        broker.resume()
    stage.close()


@pytest.fixture(autouse=True)
def sockets_of_the_client() -> Iterator[None]:
    """kafka-python leaves unconnected sockets to the garbage collection, which warns of each."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def in_time(call: Callable[[], object]) -> None:
    """Check that the call ends with an error, which takes some seconds, or a minute where all is busy."""
    began_at = monotonic()
    with pytest.raises(TransportUnavailable):
        call()
    assert monotonic() - began_at < 60


@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_calls_end_in_time_and_all_goes_on_when_the_broker_is_back(stage: KafkaStage, broker: KafkaServer, fault: str) -> None:
    first, _ = stage.partitions
    worker = stage.worker(consumer=QUICK, producer=QUICK_PRODUCER)
    stage.settle(worker)
    stage.send(b"a")
    stage.poll_until(lambda: worker.records, "the first record", worker)
    getattr(broker, fault)()
    in_time(lambda: worker.publish(first, notification(1, b"a"), metadata='["t",1,1]'))
    in_time(lambda: worker.transport.poll(10, 100))
    in_time(lambda: worker.transport.position(first))
    in_time(lambda: worker.publish(first, notification(1, b"a"), metadata='["t",1,1]'))
    in_time(lambda: worker.transport.source(first))
    in_time(lambda: worker.transport.end_offset(first))
    broker.resume() if fault == "pause" else broker.start()
    worker.publish_at_last(first, notification(1, b"a"), metadata='["t",1,1]')
    stage.send(b"b")
    stage.poll_until(lambda: worker.values()[-1] == b"b", "the record after it", worker)
    assert values_of(stage.outputs()) == [b"a"]
    found: list[Position | None] = []
    until_done(lambda: found.append(worker.transport.position(first)))
    assert found == [Position(1, '["t",1,1]')]


def test_a_worker_that_starts_without_brokers_leaves_nothing_behind(stage: KafkaStage, broker: KafkaServer) -> None:
    transport = KafkaTransport(stage.settings(consumer=QUICK), FixedClock())
    broker.stop()
    for _ in range(3):
        in_time(transport.assignment)
    before = _open_files(), threading.active_count()
    for _ in range(5):
        in_time(transport.assignment)
    wait_until(lambda: _open_files() <= before[0] and threading.active_count() <= before[1], "nothing stays behind")
    broker.start()
    wait_until(lambda: _assigns(transport), "the assignment")
    transport.close()


def test_a_worker_whose_outcome_is_not_known_leaves_nothing_behind(stage: KafkaStage, broker: KafkaServer) -> None:
    first, _ = stage.partitions
    worker = stage.worker(consumer=QUICK, producer=QUICK_PRODUCER)
    stage.settle(worker)
    broker.stop()
    for _ in range(2):
        in_time(lambda: worker.publish(first, notification(1, b"a"), metadata='["t",1,1]'))
    before = _open_files(), threading.active_count()
    for _ in range(4):
        in_time(lambda: worker.publish(first, notification(1, b"a"), metadata='["t",1,1]'))
    wait_until(lambda: _open_files() <= before[0] + 2 and threading.active_count() <= before[1], "nothing stays behind")
    broker.start()
    worker.publish_at_last(first, notification(1, b"a"), metadata='["t",1,1]')
    assert values_of(stage.outputs()) == [b"a"]


def test_the_reason_why_no_broker_answers_is_named(stage: KafkaStage, broker: KafkaServer) -> None:
    broker.stop()
    transport = KafkaTransport(stage.settings(consumer=QUICK), FixedClock())
    with pytest.raises(TransportUnavailable, match="ECONNREFUSED"):
        transport.assignment()


def _assigns(transport: KafkaTransport) -> bool:
    try:
        transport.poll(1, 100)
    except TransportUnavailable:
        return False
    return bool(transport.assignment())


def _open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
