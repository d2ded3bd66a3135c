"""The Kafka transport on a real broker: input, output, and positions."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from harness.waiting import wait_until
from kafka import KafkaConsumer, TopicPartition

from guardian.ports import Channel, OutputRecord, PartitionOutput, Position
from resequencer.record import Cut
from tests.notification_service.connectors.kafka.stage import MAX_BYTES, START, KafkaStage, notification, values_of

pytestmark = pytest.mark.slow


def test_records_come_as_they_were_sent_and_in_order(stage: KafkaStage) -> None:
    stage.send(b"a", b"b", key=b"unit", headers=(("schema-version", b"1"), ("schema-version", b"2")))
    stage.send(b"c", partition=1, key=None)
    worker = stage.worker()
    stage.poll_until(lambda: len(worker.records) == 3, "three records", worker)
    first, second = stage.partitions
    assert [(str(each.origin), each.value, each.key) for each in sorted(worker.records, key=lambda each: each.origin)] == [
        (f"{first}@0", b"a", b"unit"),
        (f"{first}@1", b"b", b"unit"),
        (f"{second}@0", b"c", None),
    ]
    assert worker.records[0].headers in ((("schema-version", b"1"), ("schema-version", b"2")), ())


def test_what_is_not_sought_is_not_read(stage: KafkaStage) -> None:
    stage.send(b"a")
    transport = stage.worker().transport
    wait_until(lambda: transport.poll(10, 50) and transport.assignment() == stage.partitions, "the assignment")
    _, second = stage.partitions
    transport.seek(second, 0)
    stage.send(b"b", partition=1)
    polled = wait_until(lambda: (polled := transport.poll(10, 200)).records and polled, "what is sought")
    assert [each.value for each in polled.records] == [b"b"]


def test_a_poll_for_nothing_brings_nothing_and_loses_nothing(stage: KafkaStage) -> None:
    worker = stage.worker()
    stage.settle(worker)
    stage.send(b"a")
    for _ in range(5):
        assert worker.poll(max_records=0, timeout_ms=100).records == ()
    wait_until(lambda: worker.poll().records, "the record")
    assert worker.values() == [b"a"]


def test_a_poll_for_nothing_tells_the_ends_of_the_logs(stage: KafkaStage) -> None:
    """A deadline that waits for its backlog must learn the ends though nothing may be read."""
    worker = stage.worker()
    stage.settle(worker)
    stage.send(b"a", b"b")
    first, second = stage.partitions
    polled = wait_until(lambda: (polled := worker.poll(max_records=0)).ends.get(first) == 2 and polled, "the ends")
    assert (polled.ends, polled.log_ends) == ({first: 2, second: 0}, {first: 2, second: 0})


def test_what_was_half_read_when_reading_was_held_up_is_read_on_beside_another_partition(stage: KafkaStage) -> None:
    """The client keeps the other half back while it reads the other partition."""
    first, second = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    worker.poll(max_records=0)
    stage.send_in_transaction(*(b"%d" % number for number in range(20)))
    member = worker.transport._member
    assert member is not None
    begun = wait_until(lambda: member.poll([first], 5, 50).records, "the first half")
    assert len(begun[first]) == 5
    stage.send(b"other", partition=1)
    wait_until(lambda: member.poll([second], 5, 50).records, "the other partition")
    rest = wait_until(lambda: member.poll([first, second], 100, 50).records, "the second half")
    assert [each.value for each in rest[first]] == [b"%d" % number for number in range(5, 20)]


def test_a_value_that_is_too_long_is_cut_and_one_that_is_missing_is_null(stage: KafkaStage) -> None:
    stage.send(b"x" * MAX_BYTES + b"y", None)
    worker = stage.worker()
    stage.poll_until(lambda: len(worker.records) == 2, "two records", worker)
    long, missing = worker.records
    assert (len(long.value), long.cut and long.cut.length) == (64 << 10, MAX_BYTES + 1)
    assert isinstance(long.cut, Cut)
    assert (missing.value, missing.defect) == (None, None)


def test_reading_steps_over_the_markers_of_transactions_up_to_the_end_that_it_returns(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    stage.send_in_transaction(b"a", b"b")
    stage.send_in_transaction(b"never", abort=True)
    ends = wait_until(lambda: (polled := worker.poll()).ends[first] >= 5 and polled.ends, "the end")
    stage.poll_until(lambda: worker.read_to[first] >= ends[first], "having read up to the end", worker)
    assert worker.values() == [b"a", b"b"]
    assert worker.read_to[first] == ends[first] == 5


def test_an_open_transaction_hides_what_is_behind_it(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    with stage.open_transaction(b"a"):
        stage.send(b"b")
        polled = wait_until(lambda: (polled := worker.poll()).log_ends.get(first) == 2 and polled, "the log's end")
        assert (worker.records, polled.ends[first]) == ([], 0)
    stage.poll_until(lambda: worker.values() == [b"a", b"b"], "what was hidden", worker)


@pytest.mark.parametrize("abort", [False, True])
def test_the_marker_of_a_transaction_at_the_end_of_a_log_does_not_keep_reading_from_that_end(
    stage: KafkaStage, abort: bool
) -> None:
    """The same holds for aborted records, and for a log in which no record before the end is delivered."""
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    stage.send(b"a")
    stage.send_in_transaction(b"b", abort=abort)
    stage.send_in_transaction(b"never", abort=True)
    polled = wait_until(
        lambda: (polled := worker.poll()).log_ends[first] == 5 == worker.read_to[first] and polled, "the log's end"
    )
    assert polled.ends[first] == 5
    assert worker.values() == ([b"a"] if abort else [b"a", b"b"])
    stage.send_in_transaction(b"never", abort=True)
    wait_until(lambda: worker.poll().log_ends[first] == 7 == worker.read_to[first], "the log's end again")


def test_where_reading_is_at_the_end_of_each_log_the_brokers_are_asked_for_it_once_a_poll(stage: KafkaStage) -> None:
    first, second = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    stage.send(b"a", b"b")
    stage.poll_until(lambda: worker.read_to[first] == 2, "the records", worker)
    with counted_looks() as looks:
        assert worker.poll().ends == {first: 2, second: 0}
        assert len(looks) == 1
        with stage.open_transaction(b"c"):
            assert worker.poll(timeout_ms=0).log_ends == {first: 3, second: 0}
        assert [sorted(each) for each in looks[2:]] == [[TopicPartition(*first)]]


@contextmanager
def counted_looks() -> Iterator[list[list[TopicPartition]]]:
    """Count for which partitions the brokers are asked for the ends, one list per call."""
    looks: list[list[TopicPartition]] = []
    asked = KafkaConsumer.end_offsets

    def end_offsets(consumer: KafkaConsumer, partitions: list[TopicPartition], **options: int) -> dict[TopicPartition, int]:
        looks.append(partitions)
        found: dict[TopicPartition, int] = asked(consumer, partitions, **options)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KafkaConsumer, "end_offsets", end_offsets)
        yield looks


def test_what_is_published_is_read_once_with_its_key_headers_and_position(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    headers = (("notification-id", b"N1"), ("source-position", b"t-0@0"))
    letter = OutputRecord(2, Channel.DEAD_LETTERS, None, (("dead-letter-reason", b"undecodable"),), b"\xff")
    worker.publish(first, notification(1, b'{"a": 1}', b"unit", headers), letter, metadata='["t",3,2]', offset=7)
    (published,) = stage.outputs()
    assert (published.key, published.value, tuple(published.headers)) == (b"unit", b'{"a": 1}', headers)
    (dead,) = stage.outputs(Channel.DEAD_LETTERS)
    assert (dead.key, dead.value, dead.headers) == (None, b"\xff", [("dead-letter-reason", b"undecodable")])
    assert worker.transport.position(first) == Position(7, '["t",3,2]')


def test_positions_of_several_partitions_leave_together(stage: KafkaStage) -> None:
    worker = stage.worker()
    stage.settle(worker)
    outputs = [PartitionOutput(each, (notification(1, str(each).encode()),), Position(5, "m")) for each in stage.partitions]
    worker.transport.publish(outputs)
    assert sorted(values_of(stage.outputs())) == sorted(str(each).encode() for each in stage.partitions)
    assert [worker.transport.position(each) for each in stage.partitions] == [Position(5, "m")] * 2


def test_notifications_of_a_unit_leave_in_order(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    numbers = [str(number).encode() for number in range(3_000)]
    worker.publish(first, *[notification(int(each), each + b" " * 500) for each in numbers])
    assert [value.strip() for value in values_of(stage.outputs())] == numbers


def test_a_worker_that_comes_back_goes_on_at_the_position(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    stage.send(b"a", b"b", b"c")
    worker = stage.worker("slot")
    stage.poll_until(lambda: len(worker.records) == 3, "three records", worker)
    worker.publish(first, offset=2, metadata='["t",1,1]')
    worker.transport.close()
    again = stage.worker("slot")
    stage.poll_until(lambda: again.records, "the third record", again)
    assert again.values() == [b"c"]


def test_a_partition_without_history_has_no_position_and_begins_at_the_earliest(stage: KafkaStage) -> None:
    transport = stage.worker().transport
    stage.send(b"a")
    wait_until(lambda: transport.poll(1, 50) and transport.assignment(), "the assignment")
    first, _ = stage.partitions
    assert transport.position(first) is None
    assert (transport.start_offset(first), transport.end_offset(first)) == (0, 1)


def test_the_source_names_the_topic_by_its_id_and_the_group(stage: KafkaStage) -> None:
    transport = stage.worker().transport
    (source,) = {transport.source(each) for each in stage.partitions}
    with stage.kafka.admin() as admin:
        (described,) = admin.describe_topics([stage.topics.input])
    assert source == f"{described['topic_id']} {stage.group}"


def test_a_position_that_another_program_wrote_is_told_without_its_text(stage: KafkaStage) -> None:
    first, second = stage.partitions
    stage.send(b"a", b"b")
    stage.set_position(first, 1, '["looks",1,2]')
    worker = stage.worker()
    stage.settle(worker)
    assert worker.transport.position(first) == Position(1, "")
    assert worker.transport.position(second) == Position(0, START)
    (note,) = worker.transport.notes
    assert note == f"the position of {first}, offset 1, was set by another program (its metadata: '[\"looks\",1,2]')"


@pytest.mark.parametrize("length", [1, 4_000])
def test_metadata_comes_back_as_it_was_given(stage: KafkaStage, length: int) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    worker.publish(first, metadata="é" * length)
    assert worker.transport.position(first) == Position(0, "é" * length)
