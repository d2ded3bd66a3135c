"""The output on Kafka during failures: it leaves once as a whole, or not at all."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from harness.waiting import wait_until
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaTimeoutError

from guardian.ports import Channel, NotPublished, OutputRecord, Position, PublishRefused, TransportRefused, TransportUnavailable
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import START, KafkaStage, KafkaWorker, notification, read_to_end, values_of

pytestmark = pytest.mark.slow


def plant(worker: KafkaWorker, fault: Callable[[Callable[[], None]], None]) -> None:
    """Replace the client's next commit by `fault`; later commits work again."""
    producer: Any = worker.transport._publisher.connect()._producer
    commit = producer.commit_transaction

    def struck() -> None:
        producer.commit_transaction = commit
        fault(commit)

    producer.commit_transaction = struck


def lost_on_the_way(commit: Callable[[], None]) -> None:
    raise KafkaTimeoutError("planted: it never arrived")


def answer_lost(commit: Callable[[], None]) -> None:
    commit()
    raise KafkaTimeoutError("planted: its answer was lost")


def test_a_commit_whose_answer_was_lost_is_found_to_have_happened(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    plant(worker, answer_lost)
    worker.publish(first, notification(1, b"a"), metadata='["t",1,1]')
    worker.publish(first, notification(2, b"b"), metadata='["t",2,2]')
    assert values_of(stage.outputs()) == [b"a", b"b"]
    assert worker.transport.position(first) == Position(0, '["t",2,2]')


def test_a_commit_that_never_arrived_is_made_again_when_it_is_asked_for_again(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    plant(worker, lost_on_the_way)
    with pytest.raises(TransportUnavailable, match="planted"):
        worker.publish(first, notification(1, b"a"), metadata='["t",1,1]')
    assert worker.transport.position(first) == Position(0, START)
    worker.publish(first, notification(1, b"a"), metadata='["t",1,1]')
    assert values_of(stage.outputs()) == [b"a"]


def plant_out_of_reach(worker: KafkaWorker, fault: Callable[[Callable[[], None]], None]) -> None:
    """Let `fault` hit the next commit, and let the lookup of its outcome fail at first."""
    publisher: Any = worker.transport._publisher
    connect = publisher.connect

    def out_of_reach() -> None:
        publisher.connect = connect
        raise TransportUnavailable("planted: the brokers are away")

    def struck(commit: Callable[[], None]) -> None:
        publisher.connect = out_of_reach
        fault(commit)

    plant(worker, struck)


def test_a_commit_that_arrived_though_it_could_not_be_found_out_is_not_made_again(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    plant_out_of_reach(worker, answer_lost)
    with pytest.raises(TransportUnavailable, match="away"):
        worker.publish(first, notification(1, b"a"), metadata='["t",1,1]')
    worker.publish(first, notification(1, b"a"), metadata='["t",1,1]')
    assert values_of(stage.outputs()) == [b"a"]


def test_of_a_commit_that_never_arrived_it_is_reported_that_nothing_is_published(stage: KafkaStage) -> None:
    """The caller can then try a smaller publication. The answer may come at once, or after the outcome was unknown at first."""
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    many = [notification(1, b"a"), notification(2, b"b")]
    plant(worker, lost_on_the_way)
    with pytest.raises(NotPublished):
        worker.publish(first, *many, metadata='["t",1,2]')
    plant_out_of_reach(worker, lost_on_the_way)
    with pytest.raises(TransportUnavailable, match="away") as not_known:
        worker.publish(first, *many, metadata='["t",1,2]')
    assert not isinstance(not_known.value, NotPublished)
    with pytest.raises(NotPublished):
        worker.publish(first, *many, metadata='["t",1,2]')
    worker.publish(first, many[0], metadata='["t",1,1]')
    worker.publish(first, many[1], metadata='["t",1,2]')
    assert values_of(stage.outputs()) == [b"a", b"b"]


def test_an_outcome_that_another_worker_has_moved_beyond_costs_the_partition(stage: KafkaStage) -> None:
    first, second = stage.partitions
    worker = stage.worker()
    stage.settle(worker)

    def overtaken(commit: Callable[[], None]) -> None:
        commit()
        stage.set_position(first, 1, "another's")
        raise KafkaTimeoutError("planted: its answer was lost")

    stage.send(b"a", b"b")
    plant(worker, overtaken)
    with pytest.raises(PublishRefused, match=f"another worker has moved the position of {first}"):
        worker.publish(first, notification(1, b"a"), offset=0, metadata='["t",1,1]')
    assert worker.transport.assignment() == [second]
    assert worker.transport.assignment() == [first, second]
    assert worker.transport.position(first) == Position(1, "")


def test_the_same_position_again_is_not_taken_for_done_when_its_outcome_is_not_known(stage: KafkaStage) -> None:
    """It is unknown which worker wrote the position, and a zombie must not heal."""
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    plant(worker, lost_on_the_way)
    with pytest.raises(TransportUnavailable):
        worker.publish(first, metadata=START)
    worker.publish(first, metadata=START)


def test_a_position_can_be_read_when_the_last_outcome_is_not_known(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    plant(worker, lost_on_the_way)
    with pytest.raises(TransportUnavailable):
        worker.publish(first, notification(1, b"a"), metadata='["t",1,1]')
    assert worker.transport.position(first) == Position(0, START)
    stage.rebalance(worker)
    worker.publish_at_last(first, notification(1, b"a"), metadata='["t",1,1]')
    assert values_of(stage.outputs()) == [b"a"]


def test_a_record_that_did_not_arrive_keeps_the_others_from_leaving(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    producer: Any = worker.transport._publisher.connect()._producer
    send = producer.send
    calls = iter(range(10))

    def send_or_fail(*given: Any) -> Any:
        future = send(*given)
        if next(calls) == 1:
            future = type(future)(future._produce_future, 1, 0, None, 0, 0, 0).failure(KafkaTimeoutError("planted: expired"))
        return future

    producer.send = send_or_fail
    with pytest.raises(TransportUnavailable, match="planted"):
        worker.publish(first, *[notification(number, b"%d" % number) for number in range(3)])
    assert stage.outputs() == []
    worker.publish(first, *[notification(number, b"%d" % number) for number in range(3)])
    assert values_of(stage.outputs()) == [b"0", b"1", b"2"]


def test_a_notification_that_is_too_large_leaves_as_a_dead_letter_in_its_place(kafka: KafkaServer) -> None:
    stage = KafkaStage(kafka, config={"max.message.bytes": "100000"})
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    headers = (("notification-id", b"N"), ("source-position", b"t-0@5"))
    worker.publish(first, notification(1, b"a"), notification(2, b"x" * 100_000, headers=headers), notification(3, b"b"))
    assert values_of(stage.outputs()) == [b"a", b"b"]
    (dead,) = stage.outputs(Channel.DEAD_LETTERS)
    headers = dict(dead.headers)
    assert (dead.key, dead.value) == (b"unit", b"x" * (64 << 10))
    assert headers["dead-letter-reason"] == b"too-large"
    assert headers["dead-letter-source-position"] == b"t-0@5"
    assert (headers["notification-id"], headers["dead-letter-value-length"]) == (b"N", b"100000")
    stage.close()


def test_what_the_topic_takes_no_more_since_the_start_leaves_as_a_dead_letter_too(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    with stage.kafka.admin() as admin:
        smaller = {"max.message.bytes": "50000"}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, stage.topics.notifications, smaller)])
    wait_until(lambda: _limit(stage, stage.topics.notifications) == "50000", "the new limit")
    worker.publish(first, notification(1, b"a"), notification(2, b"x" * 60_000))
    assert values_of(stage.outputs()) == [b"a"]
    (dead,) = stage.outputs(Channel.DEAD_LETTERS)
    assert dead.value == b"x" * 60_000
    assert worker.transport.position(first) == Position(0, '["m",1,1]')


def _limit(stage: KafkaStage, topic: str) -> str:
    with stage.kafka.admin() as admin:
        found = admin.describe_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, ["max.message.bytes"])], config_filter="all"
        )
    return str(found["topic"][topic]["max.message.bytes"]["value"])


# Facts


@pytest.fixture
def with_facts(kafka: KafkaServer) -> Iterator[KafkaStage]:
    stage = KafkaStage(kafka, has_facts=True)
    yield stage
    stage.close()


def fact(number: int, key: bytes = b"group", value: bytes = b'{"type":"status"}') -> OutputRecord:
    return OutputRecord(number, Channel.FACTS, key, (("member", b"unit"),), value)


def test_facts_leave_in_the_transaction_of_the_notifications_or_not_at_all(with_facts: KafkaStage) -> None:
    first, _ = with_facts.partitions
    worker = with_facts.worker()
    with_facts.settle(worker)
    plant(worker, lost_on_the_way)
    with pytest.raises(TransportUnavailable, match="planted"):
        worker.publish(first, notification(1, b"a"), fact(2), metadata='["t",1,2]')
    assert worker.transport.position(first) == Position(0, START)
    plant(worker, answer_lost)
    worker.publish(first, notification(1, b"a"), fact(2), metadata='["t",1,2]')
    assert values_of(with_facts.outputs()) == [b"a"]
    assert [(each.key, each.headers) for each in with_facts.outputs(Channel.FACTS)] == [(b"group", [("member", b"unit")])]
    with closing(with_facts.reader(isolation_level="read_uncommitted")) as reader:
        assert len(read_to_end(reader, with_facts.topics.facts)) == 2


def test_facts_of_a_group_are_in_one_partition_whatever_partition_of_the_input_they_are_of(with_facts: KafkaStage) -> None:
    worker = with_facts.worker()
    with_facts.settle(worker)
    groups = [b"group-%d" % number for number in range(10)]
    for partition in with_facts.partitions:
        worker.publish(partition, *[fact(number, group) for number, group in enumerate(groups, 1)])
    places = {(each.key, each.partition) for each in with_facts.outputs(Channel.FACTS)}
    assert len(with_facts.outputs(Channel.FACTS)) == 20
    assert {key for key, _ in places} == set(groups)
    assert len(places) == len(groups)


def test_a_topic_that_takes_no_fact_is_refused_with_the_remedy_and_nothing_is_published(with_facts: KafkaStage) -> None:
    first, _ = with_facts.partitions
    worker = with_facts.worker()
    with_facts.settle(worker)
    _set_limit(with_facts, "1000")
    problem = (
        rf"^topic {with_facts.topics.facts}: a fact takes 2\d\d\d bytes, but it accepts 1000\. Raise its max\.message\.bytes"
    )
    with pytest.raises(TransportRefused, match=problem):
        worker.publish(first, notification(1, b"a"), fact(2, value=b"x" * 2_000))
    assert with_facts.outputs() == []
    assert with_facts.outputs(Channel.DEAD_LETTERS) == []
    _set_limit(with_facts, "100000")
    again = with_facts.worker(worker.settings.transactional_id.rpartition("-")[2])
    worker.transport.close()
    with_facts.workers.remove(worker)
    with_facts.settle(again)
    again.publish(first, notification(1, b"a"), fact(2, value=b"x" * 2_000))
    assert values_of(with_facts.outputs()) == [b"a"]
    assert values_of(with_facts.outputs(Channel.FACTS)) == [b"x" * 2_000]


def _set_limit(stage: KafkaStage, limit: str) -> None:
    topic = stage.topics.facts
    with stage.kafka.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": limit})])
    wait_until(lambda: _limit(stage, topic) == limit, "the new limit")


def test_facts_that_were_pending_when_they_were_switched_off_are_dropped(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    worker.publish(first, notification(1, b"a"), fact(2), metadata='["t",1,2]')
    assert values_of(stage.outputs()) == [b"a"]
    assert worker.transport.position(first) == Position(0, '["t",1,2]')


def test_a_dead_letter_that_its_topic_never_takes_is_refused_with_the_remedy(kafka: KafkaServer) -> None:
    stage = KafkaStage(kafka, config={"cleanup.policy": "compact"})
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    letter = OutputRecord(1, Channel.DEAD_LETTERS, None, (("dead-letter-reason", b"undecodable"),), b"without a key")
    with pytest.raises(TransportRefused, match=f"topic {stage.topics.dead_letters}: .*keep it uncompacted"):
        worker.publish(first, letter)
    assert f"topic {stage.topics.input} is compacted" in worker.transport.notes[0]
    stage.close()


def test_two_workers_with_one_transactional_id_end_with_the_remedy(stage: KafkaStage) -> None:
    one, two = stage.worker("slot"), stage.worker("slot")
    with pytest.raises(TransportRefused, match=f"transactional id {stage.group}-slot: another worker uses it"):
        publish_in_turns(stage, one, two)


def publish_in_turns(stage: KafkaStage, *workers: KafkaWorker) -> None:
    for _ in range(100):
        stage.poll_until(lambda: all(each.read_to for each in workers), "a partition each", *workers)
        for each in workers:
            with suppress(PublishRefused, TransportUnavailable):
                each.publish(next(iter(each.read_to)))


def test_metadata_that_is_too_long_is_refused_before_anything_is_sent(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    with pytest.raises(
        TransportRefused, match=f"{first}: the metadata of its position has 41.. characters, but brokers accept 4096"
    ):
        worker.publish(first, notification(1), metadata="x" * 4_080)
    worker.publish(first, notification(1, b"a"), metadata="x")
    assert values_of(stage.outputs()) == [b"a"]
