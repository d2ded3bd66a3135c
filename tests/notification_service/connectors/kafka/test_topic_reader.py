"""The topic reader: it reads up to an end, and continues from there."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from kafka import TopicPartition
from msgspec.structs import replace

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka import topic_reader
from notification_service.connectors.kafka.topic_reader import CommittedReader
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage

pytestmark = pytest.mark.slow


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(kafka, partitions=1)
    yield stage
    stage.close()


def test_what_lies_behind_an_end_is_read_with_the_next_one(stage: KafkaStage) -> None:
    """A poll may bring records beyond the end: a broker that was unavailable may answer with an older end."""
    stage.send(*[b"%d" % number for number in range(10)])
    (name,) = [TopicPartition(*each) for each in stage.partitions]
    with closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader:
        pieces = [[each.value for _, records in reader.read({name: end}) for each in records] for end in (3, 3, 7, 10)]
    assert pieces == [[b"0", b"1", b"2"], [], [b"3", b"4", b"5", b"6"], [b"7", b"8", b"9"]]


def test_brokers_that_send_nothing_are_not_waited_for_without_end(stage: KafkaStage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.send(b"a")
    (name,) = [TopicPartition(*each) for each in stage.partitions]
    with closing(CommittedReader(stage.settings(), [stage.topics.input])) as reader:
        reading = reader.read({name: 2})
        assert [each.value for each in next(reading)[1]] == [b"a"]
        monkeypatch.setattr(topic_reader, "_SILENT_SECONDS", 1)
        with pytest.raises(TransportUnavailable, match="have sent nothing for 1 s"):
            next(reading)


def test_a_reader_of_other_topics_does_not_need_that_of_the_facts(stage: KafkaStage) -> None:
    settings = replace(stage.settings(), topics=replace(stage.topics, facts="mistyped"))
    with closing(CommittedReader(settings, [stage.topics.input])) as reader:
        assert len(reader.ends()) == 1
    assert settings.without_facts().topics == stage.topics
