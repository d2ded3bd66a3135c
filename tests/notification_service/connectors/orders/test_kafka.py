"""The orders log on a real broker: the contract, and what only a topic can suffer."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from harness.waiting import DEADLINE_SECONDS, wait_until
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from msgspec.structs import replace

from guardian.ports import Channel, OutputRecord, TransportRefused, TransportUnavailable
from notification_service.connectors.kafka.orders import KafkaOrderBook, KafkaOrderSource
from notification_service.connectors.kafka.preflight import preflight
from notification_service.connectors.kafka.settings import KafkaSettings
from resequencer.order import decode_outcome
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.stage import KafkaStage
from tests.notification_service.connectors.orders.contract import OrdersContract, Reading, order, outcome

pytestmark = pytest.mark.slow


class KafkaHarness:
    def __init__(self, stage: KafkaStage) -> None:
        self.stage = stage
        self.partitions: Sequence[Partition] = stage.partitions

    def settings(self) -> KafkaSettings:
        return self.stage.settings()

    def source(self) -> KafkaOrderSource:
        return KafkaOrderSource(self.settings())

    def book(self) -> KafkaOrderBook:
        return KafkaOrderBook(self.settings())

    def put(self, partition: Partition, value: bytes | None) -> None:
        with closing(KafkaProducer(bootstrap_servers=self.stage.bootstrap)) as producer:
            producer.send(self.stage.topics.orders, value, b"key", partition=partition.number).get(timeout=DEADLINE_SECONDS)

    def publish(self, partition: Partition, *outcomes: OutputRecord) -> None:
        worker = self.stage.worker()
        self.stage.settle(worker)
        worker.publish_at_last(partition, *outcomes, metadata='["m",1,1]')


@pytest.fixture
def harness(kafka: KafkaServer) -> Iterator[KafkaHarness]:
    stage = KafkaStage(kafka, has_orders=True)
    yield KafkaHarness(stage)
    stage.close()


class TestOrdersOnKafka(OrdersContract):
    @pytest.fixture
    def harness(self, kafka: KafkaServer) -> Iterator[KafkaHarness]:
        stage = KafkaStage(kafka, has_orders=True)
        yield KafkaHarness(stage)
        stage.close()


def test_an_offset_before_the_log_goes_on_at_its_start(harness: KafkaHarness):
    first = harness.partitions[0]
    with closing(harness.book()) as book, closing(harness.source()) as source:
        offsets = [book.append(first, order(str(number))) for number in range(3)]
        with closing(harness.stage.kafka.admin()) as admin:
            admin.delete_records({TopicPartition(harness.stage.topics.orders, 0): offsets[2]})
        reading = Reading(source, first)
        reading.poll_until(1)
        assert (reading.ids(first), source.bounds(first)) == (["2"], range(2, 3))


def test_a_partition_without_a_leader_has_no_bounds_yet(harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch):
    """The client leaves it out of its answer, and then misses it there."""
    first = harness.partitions[0]
    with closing(harness.source()) as source:
        assert source.bounds(first) == range(0)
        answers = dict[TopicPartition, int]()
        monkeypatch.setattr(KafkaConsumer, "end_offsets", lambda _, names, timeout_ms: {each: answers[each] for each in names})
        with pytest.raises(TransportUnavailable, match=f"no leader is known of {harness.stage.topics.orders}-0"):
            source.bounds(first)


def test_a_record_without_a_value_is_one_that_cannot_be_read(harness: KafkaHarness):
    first = harness.partitions[0]
    harness.put(first, None)
    with closing(harness.source()) as source:
        reading = Reading(source, first)
        reading.poll_until(1)
        assert [each.value for each in reading.records[first]] == [b""]


def test_outcomes_are_in_the_partition_of_their_input_whatever_their_key(harness: KafkaHarness):
    second = harness.partitions[1]
    records = [outcome(number, second, order(str(number)), number) for number in range(1, 9)]
    harness.publish(second, *(replace(each, key=b"unit-%d" % each.number) for each in records))
    outcomes = harness.stage.outputs(Channel.ORDER_OUTCOMES)
    assert [(each.partition, decode_outcome(each.value).order_offset) for each in outcomes] == [
        (1, number) for number in range(1, 9)
    ]


def test_too_few_partitions_are_refused_with_what_to_do(harness: KafkaHarness):
    beyond = Partition(harness.stage.topics.input, 2)
    with closing(harness.book()) as book, closing(harness.source()) as source:
        for call in (lambda: book.append(beyond, order("a")), lambda: source.poll({beyond: 0}, 1), lambda: source.bounds(beyond)):
            with pytest.raises(TransportRefused, match=r"has 2 partitions, but the input has a partition 2\. Give it as many"):
                call()


def test_topics_of_orders_with_another_number_of_partitions_than_the_input_are_named_by_the_preflight(harness: KafkaHarness):
    topics = harness.stage.topics
    with closing(harness.stage.kafka.admin()) as admin:
        admin.create_partitions({topics.input: 3})

    def problems() -> list[str]:
        try:
            preflight(harness.settings())
        except ExceptionGroup as group:
            return sorted(str(each) for each in group.exceptions)
        return []

    wait_until(problems, "the broker to know the new partition")
    first, second = problems()
    problem = f"it has 2 partitions, but the input topic {topics.input} has 3. Give it 3 (kafka-topics --alter"
    assert first.startswith(f"topic {topics.orders}: {problem}")
    assert second.startswith(f"topic {topics.order_outcomes}: {problem}")


def test_an_outcome_that_its_topic_does_not_take_loses_its_text(kafka: KafkaServer):
    stage = KafkaStage(kafka, config={"max.message.bytes": "2000"}, has_orders=True)
    try:
        harness, first = KafkaHarness(stage), stage.partitions[0]
        harness.publish(first, outcome(1, first, order("a"), 5, "x" * 5_000))
        (published,) = stage.outputs(Channel.ORDER_OUTCOMES)
        read = decode_outcome(published.value)
        assert (read.order, read.order_offset) == (order("a"), 5)
        assert read.text.startswith("xxx")
    finally:
        stage.close()
