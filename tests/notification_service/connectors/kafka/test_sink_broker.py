"""A broker that is killed or frozen at the worst moments of a publication through a Kafka sink."""

from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import pytest
from harness.nightly import at_night

from guardian.ports import Position
from notification_service.connectors.kafka.producer import TransactionalProducer
from notification_service.connectors.kafka.region import Markers
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.region_stage import RegionStage, until_done
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notifications, output

pytestmark = pytest.mark.slow

ONE, TWO = PARTITIONS
FROZEN_SECONDS = 6
"""Longer than the sink waits for a transaction."""

Strike = Callable[[KafkaServer], None]


@pytest.fixture
def stage(struck_server: Callable[..., Any]) -> Iterator[RegionStage]:
    stage = RegionStage(struck_server(KafkaServer))
    yield stage
    stage.close()


def kill(server: KafkaServer) -> None:
    server.kill()
    server.start()


def freeze(server: KafkaServer) -> None:
    server.pause()
    Timer(FROZEN_SECONDS, server.resume).start()


def strikes(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, strike: Callable[[], None], *, before: bool) -> None:
    """Let `strike` happen once, right before or after the next call of this method."""
    real, remaining = getattr(kind, name), [strike]

    def struck(*arguments: Any, **named: Any) -> Any:
        if before and remaining:
            remaining.pop()()
        answer = real(*arguments, **named)
        if not before and remaining:
            remaining.pop()()
        return answer

    monkeypatch.setattr(kind, name, struck)


@pytest.mark.parametrize(
    ("kind", "name", "before", "strike"),
    [
        (TransactionalProducer, "end", False, kill),
        (TransactionalProducer, "end", True, freeze),
        *at_night(
            "brokers",
            (TransactionalProducer, "begin", False, kill),
            (TransactionalProducer, "begin", False, freeze),
            (TransactionalProducer, "wait", False, kill),
            (TransactionalProducer, "wait", False, freeze),
            (TransactionalProducer, "end", True, kill),
            (TransactionalProducer, "end", False, freeze),
            (Markers, "find", True, kill),
            (Markers, "find", True, freeze),
            (Markers, "find", False, kill),
            (Markers, "find", False, freeze),
        ),
    ],
)
def test_a_broker_struck_in_a_publication_gets_each_record_once(
    stage: RegionStage, monkeypatch, kind: type, name: str, before: bool, strike: Strike
) -> None:
    sink = stage.sink(is_patient=False)
    for each in PARTITIONS:
        until_done(lambda each=each: sink.position(each))
    sink.publish([output(ONE, notifications(1, 5), 5)])
    strikes(monkeypatch, kind, name, lambda: strike(stage.kafka), before=before)
    if kind is Markers:
        until_done(lambda: sink.position(ONE))
    outputs = [output(ONE, notifications(1, 600), 600), output(TWO, notifications(1, 10, "two"), 10)]
    until_done(lambda: sink.publish(outputs))
    published = stage.published()
    assert [each for each in published if b"n" in each] == [b'{"n":%d}' % number for number in range(1, 601)]
    assert sorted(each for each in published if b"two" in each) == sorted(b'{"two":%d}' % number for number in range(1, 11))
    assert sink.position(ONE) == Position(600, '["t",600,600]', highest=600)
    sink.close()
