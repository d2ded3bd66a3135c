"""The producer of records that belong to no transaction."""

import os
from collections.abc import Callable
from contextlib import closing

import pytest
from harness.waiting import wait_until
from kafka import TopicPartition
from kafka.errors import MessageSizeTooLargeError
from kafka.producer.future import FutureProduceResult, FutureRecordMetadata

from guardian.ports import TransportUnavailable
from notification_service.connectors.kafka.core.client_options import KafkaTopics, read_options
from notification_service.connectors.kafka.core.records import ProducerRecord
from notification_service.connectors.kafka.producer import IdempotentProducer, NotTaken
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.record import Partition
from servers.kafka import KafkaServer

pytestmark = pytest.mark.slow

MAX_SECONDS = 60
TOO_LARGE = os.urandom(1_500_000)
"""More than a topic takes, and less than the producer refuses."""


@pytest.fixture
def topic(kafka: KafkaServer, fresh_name: Callable[[str], str]) -> str:
    name = fresh_name("appended")
    kafka.create_topics(name, partitions=1)
    return name


def make_producer(server: KafkaServer, topic: str) -> IdempotentProducer:
    options, _, _ = read_options({"bootstrap.servers": server.bootstrap, "group.id": "g"}, {})
    settings = KafkaSettings.make(KafkaTopics(topic, topic, topic), options, "unused", 5 << 20)
    return IdempotentProducer("the topic", settings, max_request_size=4 << 20)


def test_a_record_that_the_brokers_refuse_does_not_fail_those_behind_it(kafka: KafkaServer, topic: str) -> None:
    """The client itself fails every later record with the same error."""
    with closing(make_producer(kafka, topic)) as producer:
        assert producer.append(ProducerRecord(topic, b"k", (), b"before"), MAX_SECONDS) == 0
        with pytest.raises(TransportUnavailable, match="MessageSizeTooLarge"):
            producer.append(ProducerRecord(topic, b"k", (), TOO_LARGE), MAX_SECONDS)
        assert producer.append(ProducerRecord(topic, b"k", (), b"behind"), MAX_SECONDS) == 1


def test_of_several_records_the_one_that_is_never_taken_is_named(kafka: KafkaServer, topic: str) -> None:
    records = [ProducerRecord(topic, b"k", (), value) for value in (b"a", TOO_LARGE)]
    with closing(make_producer(kafka, topic)) as producer:
        with pytest.raises(NotTaken) as raised:
            producer.append_all(records[1:], MAX_SECONDS)
        assert (raised.value.at, raised.value.is_too_large) == (0, True)
        assert producer.append_all(records[:1] * 3, MAX_SECONDS) == [(Partition(topic, 0), offset) for offset in range(3)]


def test_of_all_that_the_client_fails_with_one_error_the_largest_record_is_named(
    kafka: KafkaServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not sent yet when the brokers refused a record gets its error, too."""
    records = [ProducerRecord(topic, b"k", (), value) for value in (b"sent", b"behind", TOO_LARGE, b"last")]
    with closing(make_producer(kafka, topic)) as producer:
        producer.append(records[0], MAX_SECONDS)
        refused = MessageSizeTooLargeError("refused")

        def send(*_: object) -> FutureRecordMetadata:
            """As a batch that the client has failed with the error of another one."""
            record = records[len(futures)]
            batch = FutureProduceResult(TopicPartition(topic, 0))
            futures.append(FutureRecordMetadata(batch, 0, None, None, len(record.key or b""), len(record.value or b""), 0))
            batch.success((0, None, None)) if len(futures) == 1 else batch.failure(refused)
            return futures[-1]

        futures: list[FutureRecordMetadata] = []
        monkeypatch.setattr(producer._producer, "send", send)
        with pytest.raises(NotTaken) as raised:
            producer.append_all(records, MAX_SECONDS)
        assert (raised.value.at, raised.value.is_too_large) == (2, True)


def test_what_was_not_confirmed_in_time_is_written_before_what_follows(kafka: KafkaServer, topic: str) -> None:
    with closing(make_producer(kafka, topic)) as producer:
        assert producer.append(ProducerRecord(topic, b"k", (), b"first"), MAX_SECONDS) == 0
        with pytest.raises(TransportUnavailable, match="not confirmed in time"):
            producer.append(ProducerRecord(topic, b"k", (), b"late"), 0)
        assert producer.append(ProducerRecord(topic, b"k", (), b"behind"), MAX_SECONDS) == 2


def test_a_flush_of_nothing_connects_to_no_broker(kafka: KafkaServer, topic: str) -> None:
    with closing(make_producer(kafka, topic)) as producer:
        producer.flush([], 0)
        assert producer._producer is None


def test_closing_does_not_take_away_what_is_on_its_way(kafka: KafkaServer, topic: str) -> None:
    producer = make_producer(kafka, topic)
    futures = [producer.send(ProducerRecord(topic, b"k", (), b"%d" % number)) for number in range(100)]
    producer.close(0)
    wait_until(lambda: all(each.is_done for each in futures), "the records have arrived")
    assert [each.value.offset for each in futures] == list(range(100))
