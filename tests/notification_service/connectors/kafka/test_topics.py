"""Topics with problems: what is refused, what is logged, and that no record is skipped silently."""

from contextlib import closing
from uuid import UUID

import msgspec
import pytest
from harness.waiting import wait_until
from kafka import KafkaProducer, TopicPartition

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.connectors.kafka.core.client_options import KafkaTopics
from notification_service.connectors.kafka.core.offset_metadata import OffsetMetadata
from notification_service.connectors.kafka.sink import KafkaTransport
from resequencer.record import Partition
from servers.kafka import KafkaServer, KafkaSettings
from tests.notification_service.connectors.kafka.stage import FixedClock, KafkaStage, KafkaWorker

pytestmark = pytest.mark.slow


def recreate(stage: KafkaStage) -> None:
    with stage.kafka.admin() as admin:
        admin.delete_topics([stage.topics.input])
        wait_until(lambda: stage.topics.input not in admin.list_topics(), "the deletion")
    stage.kafka.create_topics(stage.topics.input, partitions=2)


def delete_before(stage: KafkaStage, partition: Partition, offset: int) -> None:
    """Delete records as the retention does."""
    with stage.kafka.admin() as admin:
        admin.delete_records({TopicPartition(*partition): offset})


def refused(transport: KafkaTransport) -> TransportRefused | None:
    """Return the error with which the transport refuses to continue."""
    try:
        transport.assignment()
        transport.poll(10, 100)
    except TransportRefused as error:
        return error
    except TransportUnavailable:
        return None
    return None


@pytest.mark.parametrize("which", ["input", "notifications", "dead_letters", "facts"])
def test_a_topic_that_does_not_exist_is_refused_by_name(stage: KafkaStage, which: str) -> None:
    settings = stage.settings()
    topics: KafkaTopics = msgspec.structs.replace(settings.topics, **{which: "mistyped"})
    transport = KafkaTransport(msgspec.structs.replace(settings, topics=topics), FixedClock())
    error = wait_until(lambda: refused(transport), "the refusal")
    assert error.what == "topic mistyped"
    assert "does not exist, or the user may not describe it. Create it (kafka-topics --create)" in error.problem
    transport.close()


def test_a_mistyped_topic_is_not_made_though_the_brokers_would(own_server) -> None:
    broker = own_server(KafkaServer, KafkaSettings(properties={"auto.create.topics.enable": "true"})).start()
    stage = KafkaStage(broker)
    settings = stage.settings()
    topics = msgspec.structs.replace(settings.topics, notifications="mistyped")
    transport = KafkaTransport(msgspec.structs.replace(settings, topics=topics), FixedClock())
    assert wait_until(lambda: refused(transport), "the refusal").what == "topic mistyped"
    with broker.admin() as admin:
        assert "mistyped" not in admin.list_topics()
    transport.close()
    stage.close()


def test_a_topic_that_is_made_anew_under_a_running_worker_is_refused(stage: KafkaStage) -> None:
    stage.send(b"a", b"b", b"c")
    worker = stage.worker(consumer={"metadata.max.age.ms": 1_000})
    stage.poll_until(lambda: len(worker.records) == 3, "the records", worker)
    recreate(stage)
    stage.send(*[b"new"] * 10)
    error = wait_until(lambda: refused(worker.transport), "the refusal")
    assert "created again" in error.problem or "gone" in error.problem or "lost" in error.problem
    assert b"new" not in worker.values()


def test_a_topic_that_was_made_anew_is_another_source(stage: KafkaStage) -> None:
    worker = stage.worker()
    stage.settle(worker)
    before = worker.transport.source(stage.partitions[0])
    worker.transport.close()
    recreate(stage)
    again = stage.worker()
    stage.settle(again)
    after = again.transport.source(stage.partitions[0])
    assert before != after
    assert before.split()[1] == after.split()[1] == stage.group


def test_a_position_in_a_topic_that_is_gone_is_refused(stage: KafkaStage) -> None:
    """This happens when a group's positions were restored, or copied to another cluster."""
    first, _ = stage.partitions
    stage.set_position(first, 0, OffsetMetadata(UUID(int=7), 2, "text").encode("x"))
    transport = stage.worker().transport
    wait_until(lambda: transport.poll(1, 50) and transport.assignment(), "the assignment")
    with pytest.raises(
        TransportRefused, match=f"topic {stage.topics.input}: it was deleted and created again.*delete the group's off"
    ):
        transport.position(first)


def test_a_position_of_a_newer_version_is_refused(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    stage.set_position(first, 0, "resequencer/2 whatever")
    transport = stage.worker().transport
    wait_until(lambda: transport.poll(1, 50) and transport.assignment(), "the assignment")
    with pytest.raises(TransportRefused, match=f"{first}: its position has format 2; start the newer version"):
        transport.position(first)


def test_a_topic_that_grows_is_noted_and_its_new_partitions_are_read_from_their_beginning(stage: KafkaStage) -> None:
    worker = stage.worker(consumer={"metadata.max.age.ms": 1_000})
    stage.settle(worker)
    with stage.kafka.admin() as admin:
        admin.create_partitions({stage.topics.input: 3})
    stage.send(b"early", partition=2)
    stage.poll_until(lambda: worker.values() == [b"early"], "the record of the new partition", worker)
    note = wait_until(lambda: (worker.poll(), worker.transport.notes)[1], "the note")[0]
    assert f"topic {stage.topics.input} has grown from 2 to 3 partitions" in note
    assert "partitions since this worker started: until the backlog is drained" in note


def test_a_worker_that_starts_after_a_topic_has_grown_notes_it(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    worker.publish(first)
    worker.transport.close()
    with stage.kafka.admin() as admin:
        admin.create_partitions({stage.topics.input: 3})
    again = stage.worker()
    stage.poll_until(lambda: len(again.read_to) == 3, "the partitions", again)
    assert "has grown from 2 to 3 partitions since its positions were last written" in again.transport.notes[0]


def test_records_that_lie_elsewhere_than_the_default_partitioner_puts_them_are_counted_and_noted_once(
    stage: KafkaStage, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [b"uow-%d" % number for number in range(30)]
    with closing(KafkaProducer(bootstrap_servers=stage.bootstrap)) as producer:
        for key in (*keys, b"long" * 1_000):
            producer.send(stage.topics.input, b"placed", key)
        producer.send(stage.topics.input, b"without a key", partition=1)
    worker = stage.worker()
    stage.poll_until(lambda: len(worker.records) == len(keys) + 2, "the records", worker)
    assert {record.origin.partition.number for record in worker.records} == {0, 1}
    assert (worker.transport.standing().misplaced, worker.transport.notes) == (0, ())
    stage.send(*[b"anywhere"] * 3, partition=0, key=b"uow-1")
    stage.send(*[b"anywhere"] * 3, partition=1, key=b"uow-1")
    stage.poll_until(lambda: len(worker.records) == len(keys) + 8, "the others", worker)
    assert worker.transport.standing().misplaced == 3
    (note,) = worker.transport.notes
    assert "another partition than Kafka's default partitioner gives for their key" in note
    assert caplog.messages.count(note) == 1


def test_of_a_topic_that_has_grown_the_places_of_records_say_nothing(stage: KafkaStage) -> None:
    worker = stage.worker(consumer={"metadata.max.age.ms": 1_000})
    stage.settle(worker)
    with stage.kafka.admin() as admin:
        admin.create_partitions({stage.topics.input: 3})
    wait_until(lambda: (worker.poll(), worker.transport.notes)[1], "the note")
    for number in range(3):
        stage.send(b"anywhere", partition=number, key=b"uow-1")
    stage.poll_until(lambda: len(worker.records) == 3, "the records", worker)
    assert worker.transport.standing().misplaced == 0


def test_records_that_the_retention_took_before_they_were_read_are_refused_with_their_range(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    stage.send(*[b"%d" % number for number in range(10)])
    worker = stage.worker()
    stage.settle(worker)
    delete_before(stage, first, 7)
    assert worker.transport.start_offset(first) == 7
    with pytest.raises(TransportRefused, match=f"{first}: the records 3 to 6 were not read and are gone: retention deleted them"):
        worker.transport.seek(first, 3)


def test_retention_that_overtakes_a_running_worker_is_refused(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    stage.send(b"0")
    worker = stage.worker()
    stage.poll_until(lambda: worker.records, "the first record", worker)
    worker.transport.seek(first, 0)
    delete_before(stage, first, 1)
    error = wait_until(lambda: refused(worker.transport), "the refusal")
    assert "Retention deleted" in error.problem
    assert worker.values() == [b"0"]


def test_a_log_that_is_shorter_than_what_was_read_is_refused(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    stage.send(b"0")
    worker = stage.worker()
    stage.settle(worker)
    with pytest.raises(
        TransportRefused, match=f"{first}: it was read up to offset 9, but its log ends at 1: the brokers have lost"
    ):
        worker.transport.seek(first, 9)


def test_without_a_position_nothing_is_begun_where_that_was_forbidden(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker: KafkaWorker = stage.worker(consumer={"auto.offset.reset": "none"})
    wait_until(lambda: worker.transport.poll(1, 50) and worker.transport.assignment(), "the assignment")
    with pytest.raises(TransportRefused, match=f"{first}: the group has no position, and auto.offset.reset is none"):
        worker.transport.position(first)
