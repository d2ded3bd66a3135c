"""Offsets of several partitions, one of which has no leader that the client knows: here one that does not exist."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka.log_reader import LogReader
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    with closing(KafkaStage(kafka, partitions=1)) as stage:
        yield stage


@pytest.fixture
def reader(stage: KafkaStage) -> Iterator[LogReader]:
    with closing(LogReader(stage.settings())) as reader:
        yield reader


@pytest.fixture
def impatient(stage: KafkaStage) -> Iterator[LogReader]:
    """Gives up where there is no answer."""
    with closing(LogReader(stage.settings(consumer={"default.api.timeout.ms": 2_000}))) as reader:
        yield reader


@pytest.mark.parametrize("query", [LogReader.starts, LogReader.ends])
def test_an_unknown_leader_is_told_of(stage: KafkaStage, reader: LogReader, impatient: LogReader, query: object) -> None:
    [first] = stage.partitions
    assert callable(query)
    assert query(reader, [first]) == {first: 0}
    with pytest.raises(TransportUnavailable, match=f"no leader is known of {first.topic}-7"):
        query(impatient, [first, Partition(first.topic, 7)])


def test_an_unknown_leader_does_not_pass_for_a_partition_without_such_a_record(
    stage: KafkaStage, reader: LogReader, impatient: LogReader
) -> None:
    [first] = stage.partitions
    stage.send(b"a")
    assert reader.find_since([first], 0) == {first: 0}
    assert reader.find_since([first], 1 << 42) == {}
    with pytest.raises(TransportUnavailable):
        impatient.find_since([first, Partition(first.topic, 7)], 0)
