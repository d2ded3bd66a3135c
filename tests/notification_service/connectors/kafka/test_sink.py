"""Output that leaves through a Kafka sink: once, whatever fails, and from the partition's owner alone."""

from collections.abc import Callable, Iterator
from contextlib import closing
from time import monotonic
from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaTimeoutError
from msgspec.structs import replace

from guardian.ports import Channel, NotPublished, OutputRecord, Position, PublishRefused, TransportRefused, TransportUnavailable
from notification_service.connectors.kafka.preflight import preflight_sink
from notification_service.connectors.kafka.producer import TransactionalProducer
from notification_service.connectors.kafka.region import OwnedPartition
from notification_service.connectors.kafka.sink import KafkaSink
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.region_stage import RegionStage
from tests.notification_service.connectors.region.sink_contract import PARTITIONS, notifications, output

pytestmark = pytest.mark.slow

ONE, TWO = PARTITIONS


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[RegionStage]:
    stage = RegionStage(kafka)
    yield stage
    stage.close()


@pytest.fixture
def sinks(stage: RegionStage) -> Iterator[Callable[..., KafkaSink]]:
    """Makes sinks whose markers of both partitions were read."""
    made: list[KafkaSink] = []

    def make(**options: Any) -> KafkaSink:
        made.append(stage.sink(**options))
        for each in PARTITIONS:
            made[-1].position(each)
        return made[-1]

    yield make
    for each in made:
        each.close()


def values(*numbers: int, text: str = "n") -> list[bytes]:
    return [f'{{"{text}":{number}}}'.encode() for number in numbers]


def at_the_end(monkeypatch: pytest.MonkeyPatch, *faults: Callable[[Callable[[], None]], None]) -> None:
    """Let each of the next commits be one of these faults, which gets the commit; further ones work."""
    real, remaining = TransactionalProducer.end, list(faults)

    def end(producer: TransactionalProducer) -> None:
        (remaining.pop(0) if remaining else lambda commit: commit())(lambda: real(producer))

    monkeypatch.setattr(TransactionalProducer, "end", end)


def works(commit: Callable[[], None]) -> None:
    commit()


def answer_lost(commit: Callable[[], None]) -> None:
    commit()
    raise KafkaTimeoutError("planted: its answer was lost")


def lost_on_the_way(commit: Callable[[], None]) -> None:
    raise KafkaTimeoutError("planted: it never arrived")


def test_a_commit_whose_answer_was_lost_is_found_in_the_marker(stage: RegionStage, sinks, monkeypatch) -> None:
    sink = sinks()
    at_the_end(monkeypatch, answer_lost)
    with pytest.raises(TransportUnavailable) as raised:
        sink.publish([output(ONE, notifications(1, 2), 2)])
    assert not isinstance(raised.value, NotPublished)
    sink.publish([output(ONE, notifications(1, 2), 2)])
    sink.publish([output(ONE, notifications(1, 3), 3)])
    assert stage.published() == values(1, 2, 3)


def test_a_commit_that_never_arrived_is_made_again(stage: RegionStage, sinks, monkeypatch) -> None:
    sink = sinks()
    at_the_end(monkeypatch, lost_on_the_way)
    with pytest.raises(TransportUnavailable):
        sink.publish([output(ONE, notifications(1, 2), 2)])
    sink.publish([output(ONE, notifications(1, 2), 2)])
    assert stage.published() == values(1, 2)


@pytest.mark.parametrize("fault", [answer_lost, lost_on_the_way])
def test_an_unknown_outcome_is_known_to_the_takeover(stage: RegionStage, sinks, monkeypatch, fault) -> None:
    sink = sinks()
    sink.publish([output(ONE, notifications(1, 1), 1)])
    at_the_end(monkeypatch, fault)
    with pytest.raises(TransportUnavailable):
        sink.publish([output(ONE, notifications(2, 1), 2)])
    reached = 2 if fault is answer_lost else 1
    assert sinks().position(ONE) == Position(reached, f'["t",{reached},{reached}]', highest=reached)


def test_a_part_that_has_left_does_not_leave_again_and_the_rest_follows(stage: RegionStage, sinks, monkeypatch) -> None:
    """Each partition leaves in a transaction of its own, so one of them may be there and the others not."""
    sink = sinks()
    at_the_end(monkeypatch, works, lost_on_the_way)
    outputs = [output(ONE, notifications(1, 2, "one"), 2), output(TWO, notifications(1, 2, "two"), 2)]
    with pytest.raises(TransportUnavailable):
        sink.publish(outputs)
    assert stage.published() == values(1, 2, text="one")
    sink.publish(outputs)
    assert sorted(stage.published()) == values(1, 2, text="one") + values(1, 2, text="two")


def test_that_nothing_is_published_is_reported_only_if_no_part_is(stage: RegionStage, sinks, monkeypatch) -> None:
    sink = sinks()
    outputs = [output(ONE, notifications(1, 1, "one"), 1), output(TWO, notifications(1, 1, "two"), 1)]
    real = TransactionalProducer.wait

    def fail_once(producer: TransactionalProducer) -> None:
        monkeypatch.setattr(TransactionalProducer, "wait", real)
        raise KafkaTimeoutError("planted: the records did not arrive")

    monkeypatch.setattr(TransactionalProducer, "wait", fail_once)
    with pytest.raises(NotPublished):
        sink.publish(outputs)
    at_the_end(monkeypatch, works, lost_on_the_way)
    with pytest.raises(TransportUnavailable):
        sink.publish(outputs)
    monkeypatch.setattr(TransactionalProducer, "wait", fail_once)
    with pytest.raises(TransportUnavailable) as raised:
        sink.publish(outputs)
    assert not isinstance(raised.value, NotPublished)
    sink.publish(outputs)
    assert sorted(stage.published()) == values(1, text="one") + values(1, text="two")


def test_one_that_lost_its_producer_does_not_publish_over_the_new_owner(stage: RegionStage, sinks, monkeypatch) -> None:
    """Its next producer fences the new owner; but the marker shows that there is one."""
    earlier, later = sinks(), sinks()
    earlier.position(ONE)
    earlier.publish([output(ONE, notifications(1, 1), 1)])
    at_the_end(monkeypatch, lost_on_the_way)
    with pytest.raises(TransportUnavailable):
        earlier.publish([output(ONE, notifications(2, 1, "zombie"), 2)])
    later.position(ONE)
    later.publish([output(ONE, notifications(2, 2), 3)])
    for _ in range(2):
        with pytest.raises(PublishRefused):
            earlier.publish([output(ONE, notifications(2, 1, "zombie"), 2)])
    # The new owner was fenced by the attempt. It takes the partition over again, and continues.
    with pytest.raises(PublishRefused):
        later.publish([output(ONE, notifications(4, 1), 4)])
    assert later.position(ONE) == Position(3, '["t",3,3]', highest=3)
    later.publish([output(ONE, notifications(4, 1), 4)])
    assert stage.published() == values(1, 2, 3, 4)


def test_two_owners_in_turn_leave_each_number_once(stage: RegionStage, sinks) -> None:
    both = [sinks(), sinks()]
    for number in range(1, 13):
        taking_over = both[number % 2]
        assert (taking_over.position(ONE) or Position(0, "")).highest == number - 1
        with pytest.raises(PublishRefused):
            both[1 - number % 2].publish([output(ONE, notifications(number, 1, "zombie"), number)])
        taking_over.publish([output(ONE, notifications(number, 1), number)])
        fenced = [(number + 1) // 2, number // 2]
        assert [len(each.notes) for each in both] == [int(count >= 5) for count in fenced]
    assert stage.published() == values(*range(1, 13))
    assert both[0].notes[0].startswith(f"{ONE}: another worker publishes for it again and again")


def test_a_marker_among_many_is_found_and_only_the_last_one_counts(stage: RegionStage, sinks) -> None:
    sink = sinks()
    for number in (1, 2):
        sink.publish([output(ONE, notifications(number, 1), number)])
    stage.write_markers(*[b"{}"] * 6_000)
    sink.publish([output(TWO, notifications(1, 1, "two"), 1)])
    stage.write_markers(*[b"{}"] * 40)
    again = sinks()
    assert again.position(ONE) == Position(2, '["t",2,2]', highest=2)
    assert again.position(TWO) == Position(1, '["t",1,1]', highest=1)
    assert again.position(ONE._replace(number=7)) is None


def test_aborted_transactions_behind_the_last_marker_are_passed_over(stage: RegionStage, sinks) -> None:
    sink = sinks()
    sink.publish([output(ONE, notifications(1, 1), 1)])
    key = sink._owned[ONE].key.encode()
    for _ in range(3):
        stage.write_markers(*[b'{"offset":9,"metadata":"","highest":9}'] * 50, key=key, abort=True)
    assert sinks().position(ONE) == Position(1, '["t",1,1]', highest=1)


def test_another_partitions_open_transaction_delays_a_takeover_and_no_longer(stage: RegionStage, sinks) -> None:
    sinks().publish([output(ONE, notifications(1, 1), 1)])
    hasty = stage.sink(undecided_wait_ms=300)
    with stage.open_markers(b"{}"), pytest.raises(TransportUnavailable, match="still open"):
        hasty.position(ONE)
    assert hasty.position(ONE) == Position(1, '["t",1,1]', highest=1)
    hasty.close()


def test_a_transaction_that_an_owner_left_open_is_ended_by_the_takeover(stage: RegionStage, sinks, monkeypatch) -> None:
    dying = sinks()
    at_the_end(monkeypatch, lambda _: (_ for _ in ()).throw(KeyboardInterrupt("planted: killed")))
    left_open: list[OwnedPartition] = []
    monkeypatch.setattr(OwnedPartition, "discard", lambda each: left_open.append(each))  # A killed process discards nothing.
    with pytest.raises(KeyboardInterrupt):
        dying.publish([output(ONE, notifications(1, 3, "open"), 3)])
    monkeypatch.undo()
    again = sinks()
    assert again.position(ONE) is None
    again.publish([output(ONE, notifications(1, 1), 1)])
    assert stage.published() == values(1)
    for each in left_open:
        each.discard()


def test_the_topic_of_markers_is_made_compacted_and_may_get_more_partitions(stage: RegionStage, sinks) -> None:
    sinks().publish([output(ONE, notifications(1, 1), 1)])
    with closing(stage.kafka.admin()) as admin:
        resource = ConfigResource(ConfigResourceType.TOPIC, stage.markers, ["cleanup.policy"])
        found = admin.describe_configs([resource], config_filter="all")["topic"][stage.markers]
        assert found["cleanup.policy"]["value"] == "compact"
        admin.create_partitions({stage.markers: 9})
    assert sinks().position(ONE) == Position(1, '["t",1,1]', highest=1)


def test_a_topic_of_markers_that_loses_them_is_refused(stage: RegionStage, sinks) -> None:
    stage.kafka.create_topics(stage.markers, partitions=1, config={"cleanup.policy": "delete"})
    with pytest.raises(TransportRefused, match="Set it to compact"):
        sinks().position(ONE)


def test_what_a_sink_needs_is_checked_and_nothing_is_made(stage: RegionStage, sinks) -> None:
    settings = stage.sink_settings()
    preflight_sink(settings)
    with closing(stage.kafka.admin()) as admin:
        assert stage.markers not in admin.list_topics()
    sinks()
    preflight_sink(settings)
    mistyped = replace(settings, topics=replace(settings.topics, dead_letters="mistyped"))
    with pytest.raises(ExceptionGroup) as missing:
        preflight_sink(mistyped)
    assert [str(each)[:16] for each in missing.value.exceptions] == ["topic mistyped: "]
    stage.kafka.create_topics(f"{stage.markers}-deleted", partitions=1, config={"cleanup.policy": "delete"})
    losing = replace(settings, topics=replace(settings.topics, input=f"{stage.markers}-deleted"))
    with pytest.raises(ExceptionGroup) as refused:
        preflight_sink(losing)
    assert "Set it to compact" in str(refused.value.exceptions[0])


def test_a_marker_of_another_program_is_refused(stage: RegionStage, sinks) -> None:
    sink = sinks()
    stage.write_markers(b"something else", key=sink._owned[ONE].key.encode())
    with pytest.raises(TransportRefused, match="no marker"):
        sink.position(ONE)


def test_what_a_topic_refuses_for_its_size_is_a_dead_letter_of_the_same_number(kafka: KafkaServer) -> None:
    stage = RegionStage(kafka, config={"max.message.bytes": "2000"})
    sink = stage.sink()
    sink.position(ONE)
    # Only the brokers know the limit: it was lowered after the sink had asked for it.
    sink._connect()
    sink._fitting._size_limits = type(sink._fitting._size_limits)(stage.topics, dict.fromkeys(stage.topics.all, 1 << 20))
    large = OutputRecord(2, Channel.NOTIFICATIONS, b"unit", (), b"x" * 5_000)
    sink.publish([output(ONE, (*notifications(1, 1), large, *notifications(3, 1)), 3)])
    assert stage.published() == values(1, 3)
    (dead_letter,) = stage.outputs(Channel.DEAD_LETTERS)
    assert dead_letter.value.startswith(b"x" * 100)
    assert sink.position(ONE) == Position(3, '["t",3,3]', highest=3)
    sink.close()
    stage.close()


def test_timestamps_that_the_topic_refuses_are_replaced_by_those_of_sending(kafka: KafkaServer) -> None:
    stage = RegionStage(kafka, config={"message.timestamp.before.max.ms": "3600000"})
    sink = stage.sink()
    for each in PARTITIONS:
        sink.position(each)
    old = tuple(replace(each, prefix="resequencer-", timestamp=1_000_000_000_000) for each in notifications(1, 3))
    sink.publish([output(ONE, old, 3), output(TWO, notifications(1, 1, "two-"), 1)])
    sent = stage.outputs()
    assert len(sent) == 4
    assert all(each.timestamp > 1_000_000_000_000 for each in sent)
    assert stage.outputs(Channel.DEAD_LETTERS) == []
    assert sink.position(ONE) == Position(3, '["t",3,3]', highest=3)
    sink.close()
    stage.close()


def test_a_refused_record_of_one_partition_holds_up_no_other(kafka: KafkaServer) -> None:
    """Both transactions are written and not ended when the refusal comes. Their markers lie in one topic, before each other's."""
    stage = RegionStage(kafka, config={"max.message.bytes": "2000"})
    sink = stage.sink(undecided_wait_ms=500)
    for each in PARTITIONS:
        sink.position(each)
    sink._fitting._size_limits = type(sink._fitting._size_limits)(stage.topics, dict.fromkeys(stage.topics.all, 1 << 20))
    large = OutputRecord(2, Channel.NOTIFICATIONS, b"unit", (), b"x" * 5_000)
    begun = monotonic()
    sink.publish([output(ONE, (*notifications(1, 1), large), 3), output(TWO, notifications(1, 1, "two-"), 1)])
    assert monotonic() - begun < 60, "the brokers would have ended the transactions after a minute"
    assert len(stage.published()) == 2
    assert len(stage.outputs(Channel.DEAD_LETTERS)) == 1
    sink.close()
    stage.close()


def test_many_partitions_have_producers_only_once_they_are_owned(stage: RegionStage, monkeypatch) -> None:
    made: list[Any] = []
    real = TransactionalProducer.__init__
    monkeypatch.setattr(TransactionalProducer, "__init__", lambda each, *given: (made.append(each), real(each, *given))[1])
    sink = stage.sink()
    for number in range(12):
        sink.position(ONE._replace(number=number))
    assert len(made) == 12
    for cycle in range(1, 4):
        sink.publish([output(ONE._replace(number=number), notifications(cycle, 1, f"{number}-"), cycle) for number in range(12)])
    assert len(made) == 12
    assert len(set(stage.published())) == len(stage.published()) == 36
    sink.close()
