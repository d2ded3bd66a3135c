"""What a Kafka source acknowledges: by the owner of a partition alone, and never back."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.nightly import at_night
from harness.waiting import wait_until
from kafka.errors import KafkaTimeoutError
from msgspec.structs import replace

from guardian.ports import NotPublished, Position, PublishRefused, TransportRefused, TransportUnavailable
from notification_service.connectors.kafka.producer import TransactionalProducer
from notification_service.connectors.kafka.publisher import Publisher
from notification_service.connectors.kafka.sink import KafkaSource
from resequencer.record import Partition
from servers.kafka import KafkaServer
from tests.notification_service.connectors.kafka.region_stage import RegionStage, until_done
from tests.notification_service.connectors.kafka.stage import FixedClock

pytestmark = pytest.mark.slow

STALLED = {"max_poll_interval_ms": 1_000, "session_timeout_ms": 6_000}
"""A worker that does not poll for a second leaves its group, as a paused worker is removed."""


@pytest.fixture
def stage(kafka: KafkaServer) -> Iterator[RegionStage]:
    stage = RegionStage(kafka)
    yield stage
    stage.close()


@pytest.fixture
def sources(stage: RegionStage) -> Iterator[Callable[..., KafkaSource]]:
    made: list[KafkaSource] = []

    def make(*slot: object, **options: Any) -> KafkaSource:
        made.append(stage.source(*slot, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def own(source: KafkaSource, *partitions: Partition) -> None:
    """Poll until these partitions are the assigned ones, and take them over."""
    wait_until(lambda: sorted(source.assignment()) == sorted(partitions) or not source.poll(0, 50), "the assignment")
    for each in partitions:
        until_done(lambda each=each: take_over(source, each))


def take_over(source: KafkaSource, partition: Partition) -> None:
    position = source.position(partition)
    source.seek(partition, position.offset if position else 0)


def acknowledge(source: KafkaSource, partition: Partition, offset: int) -> None:
    source.acknowledge({partition: at(offset)})


def at(offset: int) -> Position:
    return Position(offset, f'["t",{offset},{offset}]')


def at_the_end(monkeypatch: pytest.MonkeyPatch, fault: Callable[[Callable[[], None]], None]) -> None:
    """Let the next commit be this fault, which gets the commit; further ones work."""
    real = TransactionalProducer.end

    def end(producer: TransactionalProducer) -> None:
        monkeypatch.setattr(TransactionalProducer, "end", real)
        fault(lambda: real(producer))

    monkeypatch.setattr(TransactionalProducer, "end", end)


def answer_lost(commit: Callable[[], None]) -> None:
    commit()
    raise KafkaTimeoutError("planted: its answer was lost")


def lost_on_the_way(commit: Callable[[], None]) -> None:
    raise KafkaTimeoutError("planted: it never arrived")


@pytest.fixture(params=[None, (0, 1)], ids=["group", "fixed"])
def source(request: pytest.FixtureRequest, stage: RegionStage, sources: Any) -> KafkaSource:
    """Owns both partitions, whose records are b"a", b"b" and b"c"."""
    for number in (0, 1):
        stage.send(b"a", b"b", b"c", partition=number)
    made: KafkaSource = sources("slot", partitions=request.param)
    own(made, *stage.partitions)
    return made


def test_an_acknowledgement_whose_answer_was_lost_has_happened(stage: RegionStage, source: KafkaSource, monkeypatch) -> None:
    one, _ = stage.partitions
    at_the_end(monkeypatch, answer_lost)
    acknowledge(source, one, 1)
    acknowledge(source, one, 1)
    acknowledge(source, one, 2)
    assert source.position(one) == at(2)


def test_one_that_never_arrived_is_not_reported_as_if_nothing_were_published(
    stage: RegionStage, source: KafkaSource, monkeypatch
) -> None:
    """Its output is published through the sinks: only the same positions may be acknowledged next."""
    one, two = stage.partitions
    at_the_end(monkeypatch, lost_on_the_way)
    with pytest.raises(TransportUnavailable) as raised:
        source.acknowledge({one: at(1), two: at(2)})
    assert not isinstance(raised.value, NotPublished)
    source.acknowledge({one: at(1), two: at(2)})
    assert [source.position(each) for each in stage.partitions] == [at(1), at(2)]


def test_the_positions_are_those_of_the_group_for_everyone(stage: RegionStage, source: KafkaSource) -> None:
    one, _ = stage.partitions
    acknowledge(source, one, 2)
    committed = stage.committed(one)
    assert committed is not None
    assert committed.offset == 2
    assert committed.metadata.endswith('["t",2,2]')


def test_one_that_was_thrown_out_acknowledges_nothing_and_owns_nothing(stage: RegionStage, sources) -> None:
    one, two = stage.partitions
    stage.send(b"a", b"b", b"c")
    stalled, other = sources(**STALLED), sources()
    own(stalled, one, two)
    own(other, one, two)
    acknowledge(other, one, 2)
    with pytest.raises(PublishRefused):
        acknowledge(stalled, one, 1)
    assert other.position(one) == at(2)
    wait_until(lambda: stalled.poll(0, 50) and one not in stalled.assignment(), "the news of the loss")
    with pytest.raises(PublishRefused):
        stalled.check_owned([one])


def test_a_partition_is_owned_by_the_last_stable_poll_and_not_by_the_one_before(stage: RegionStage, sources) -> None:
    one, two = stage.partitions
    first, second = sources(), sources()
    own(first, one, two)
    first.check_owned([one, two])

    def is_shared() -> bool:
        # One after the other they may never meet: each begins again a join that was answered while the other polled.
        list(stage._threads.map(lambda each: each.poll(0, 50), (first, second)))
        return bool(second.assignment())

    wait_until(is_shared, "a partition for the second")
    (moved,) = second.assignment()
    with pytest.raises(PublishRefused):
        first.check_owned([moved])
    with pytest.raises(PublishRefused):
        acknowledge(first, moved, 0)
    first.check_owned([one if moved == two else two])


def test_of_two_owners_of_a_fixed_partition_the_later_one_acknowledges(stage: RegionStage, sources) -> None:
    one, _ = stage.partitions
    stage.send(*[b"%d" % each for each in range(9)])
    earlier, later = sources("a", partitions=(0,)), sources("b", partitions=(0,))
    own(earlier, one)
    acknowledge(earlier, one, 1)
    own(later, one)
    acknowledge(later, one, 5)
    with pytest.raises(PublishRefused):
        acknowledge(earlier, one, 2)
    assert stage.committed(one).offset == 5
    # It is missing once, and taken over again from where the other has come to.
    assert earlier.assignment() == []
    assert earlier.assignment() == [one]
    assert earlier.position(one) == at(5)


def test_an_acknowledgement_that_an_owner_left_open_does_not_delay_the_next_owner(
    stage: RegionStage, sources, monkeypatch
) -> None:
    one, _ = stage.partitions
    stage.send(b"a", b"b", b"c")
    dying = sources("a", partitions=(0,))
    own(dying, one)
    acknowledge(dying, one, 1)
    at_the_end(monkeypatch, lambda _: (_ for _ in ()).throw(KeyboardInterrupt("planted: killed")))
    left_open: list[TransactionalProducer] = []
    # A killed process discards nothing.
    monkeypatch.setattr(Publisher, "_discard", lambda _, producer: left_open.append(producer))
    with pytest.raises(KeyboardInterrupt):
        acknowledge(dying, one, 2)
    monkeypatch.undo()
    settings = replace(stage.source_settings("b", partitions=(0,)), undecided_wait_ms=5_000)
    later = KafkaSource(settings, FixedClock())
    wait_until(lambda: later.assignment() or not later.poll(0, 50), "the assignment")
    assert later.position(one) == at(1)
    later.close()
    for each in left_open:
        each.discard()


def test_fixed_partitions_are_read_whatever_the_group_does(stage: RegionStage, sources) -> None:
    one, two = stage.partitions
    fixed, member = sources("fixed", partitions=(1,)), sources("member")
    own(fixed, two)
    own(member, one, two)
    stage.send(b"a", partition=1)
    read: list[bytes] = []
    wait_until(lambda: read.extend(each.value for each in fixed.poll(10, 50).records) or read, "the record")
    assert read == [b"a"]
    acknowledge(fixed, two, 1)
    assert fixed.assignment() == [two]
    assert fixed.standing().has_joined


def test_a_worker_without_a_fixed_partition_has_nothing_to_do(stage: RegionStage, sources) -> None:
    idle = sources("idle", partitions=())
    for _ in range(3):
        polled = idle.poll(10, 50)
        assert (polled.records, dict(polled.ends), idle.assignment()) == ((), {}, [])


def test_a_fixed_partition_that_the_topic_does_not_have_is_refused(sources) -> None:
    with pytest.raises(TransportRefused, match=r"it has 2 partitions, and kafka\.partitions names 2, 7"):
        sources("slot", partitions=(1, 2, 7)).poll(0, 50)


@pytest.mark.parametrize("partitions", [None, *at_night("brokers", ((0, 1),))], ids=["group", "fixed"])
@pytest.mark.parametrize("before", [True, False])
def test_a_broker_killed_in_an_acknowledgement_has_the_position_once_it_is_back(
    struck_server: Callable[..., Any], monkeypatch, partitions: tuple[int, ...] | None, before: bool
) -> None:
    stage = RegionStage(struck_server(KafkaServer))
    source, (one, two) = stage.source("slot", partitions), stage.partitions
    stage.send(b"a", b"b")
    own(source, one, two)

    def killed(commit: Callable[[], None]) -> None:
        if not before:
            commit()
        stage.kafka.kill()
        stage.kafka.start()
        if before:
            commit()
        else:
            raise KafkaTimeoutError("planted: its answer was lost")

    at_the_end(monkeypatch, killed)
    until_refused_or_done(source, one)
    own(source, one, two)
    assert source.position(one) in (at(2), None)
    until_done(lambda: acknowledge(source, one, 2))
    assert source.position(one) == at(2)
    source.close()
    stage.close()


def until_refused_or_done(source: KafkaSource, partition: Partition) -> None:
    """Acknowledge as the guardian does: again while the brokers are away, and after a refusal the partition is taken over."""
    try:
        until_done(lambda: acknowledge(source, partition, 2))
    except PublishRefused:
        until_done(lambda: source.poll(0, 50))
