"""Ownership of a partition on Kafka: what a worker must notice, must stop, and may continue."""

from contextlib import ExitStack, closing
from random import Random
from threading import Event
from time import monotonic

import pytest
from harness.waiting import pause_at_random, wait_until

from guardian.ports import PartitionOutput, Position, PublishRefused, TransportUnavailable
from servers.kafka import KafkaServer
from tests.notification_service.connectors.contract import another_thread
from tests.notification_service.connectors.kafka.stage import START, KafkaStage, KafkaWorker, notification, values_of

pytestmark = pytest.mark.slow

STALLED = {"max.poll.interval.ms": 1_000, "session.timeout.ms": 6_000}
"""A worker that does not poll for a second leaves its group, as a paused worker is removed."""


def thrown_out(stage: KafkaStage) -> tuple[KafkaWorker, KafkaWorker]:
    """Return a worker that was thrown out of the group and does not know it yet, and the one that has its partitions now."""
    stalled = stage.worker(consumer=STALLED)
    stage.settle(stalled)
    other = stage.worker()
    stage.poll_until(lambda: other.holds(*stage.partitions), "the other has it all", other)
    return stalled, other


def test_workers_share_the_partitions_and_take_over_from_one_that_leaves(stage: KafkaStage) -> None:
    one, two = stage.worker(), stage.worker()
    stage.settle(one, two)
    stage.poll_until(lambda: len(one.read_to) == len(two.read_to) == 1, "one partition each", one, two)
    (partition,) = one.read_to
    one.publish(partition, metadata="of the predecessor", offset=0)
    one.transport.close()
    stage.settle(two)
    assert two.transport.position(partition) == Position(0, "of the predecessor")


def test_who_will_be_given_a_partition_has_not_joined_before_and_who_is_left_out_has_after_a_while(
    stage: KafkaStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_clock = [monotonic()]
    monkeypatch.setattr("notification_service.connectors.kafka.reading.monotonic", lambda: stopped_clock[0])
    one, two, three = stage.worker(), stage.worker(), stage.worker()
    stage.settle(one)

    def is_told_only_with_a_partition(worker: KafkaWorker) -> bool:
        has_some = bool(worker.transport._fencing.assignment())
        assert worker.transport.standing().has_joined == has_some
        return has_some

    stage.poll_until(lambda: is_told_only_with_a_partition(two), "a partition that the first one gives up", one, two)
    stage.poll_until(lambda: three.transport._fencing.snapshot is not None, "the third one is a member", one, two, three)
    assert not three.transport.standing().has_joined
    stopped_clock[0] += 60
    assert three.transport.standing().has_joined


def test_nothing_is_committed_when_a_partition_goes(stage: KafkaStage) -> None:
    stage.send(b"a")
    stage.send(b"b", partition=1)
    one = stage.worker()
    stage.poll_until(lambda: len(one.records) == 2, "both records", one)
    two = stage.worker()
    stage.poll_until(lambda: two.records, "the record of the partition that went", one, two)
    one.transport.close()
    stage.settle(two)
    stage.poll_until(lambda: len(two.records) == 2, "both records", two)
    assert sorted(two.values()) == [b"a", b"b"]


def test_a_partition_that_no_other_worker_had_is_kept_through_a_rebalance(stage: KafkaStage) -> None:
    stage.send(b"a")
    stage.send(b"b", partition=1)
    one = stage.worker()
    stage.poll_until(lambda: len(one.records) == 2, "both records", one)
    two = stage.worker()
    stage.poll_until(lambda: two.read_to, "a partition that went", one, two)
    (kept,) = one.read_to
    stage.send(b"c", partition=kept.number)
    stage.poll_until(lambda: b"c" in one.values(), "what came after it", one, two)
    assert one.taken_over.count(kept) == 1
    assert sorted(one.values()) == [b"a", b"b", b"c"]


def test_a_partition_that_another_worker_had_in_between_is_missing_once_and_taken_over_again(stage: KafkaStage) -> None:
    first, second = stage.partitions
    stage.send(b"a", b"b", b"c")
    stalled = stage.worker(consumer=STALLED)
    wait_until(lambda: stalled.poll(max_records=1) and stalled.values() == [b"a"], "the first record")
    other = stage.worker()
    stage.poll_until(lambda: other.holds(first, second) and len(other.records) == 3, "the other has it all", other)
    other.publish(first, metadata="other's", offset=2)
    other.transport.close()
    stage.poll_until(lambda: stalled.holds(first, second) and len(stalled.records) == 2, "what the other has not read", stalled)
    assert stalled.values() == [b"a", b"c"]
    assert stalled.taken_over.count(first) == 2


def test_a_position_that_another_worker_moved_is_noticed_with_the_next_generation(stage: KafkaStage) -> None:
    first, second = stage.partitions
    stage.send(b"a", b"b")
    worker = stage.worker()
    stage.poll_until(lambda: len(worker.records) == 2, "both records", worker)
    stage.set_position(first, 1, "another's")
    stage.rebalance(worker)
    stage.poll_until(lambda: len(worker.records) > 2, "what lies behind the position", worker)
    assert worker.values() == [b"a", b"b", b"b"]
    assert worker.taken_over == [first, second, first]


def test_a_worker_that_was_thrown_out_publishes_nothing(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    stalled, other = thrown_out(stage)
    other.publish(first, metadata="other's", offset=0)
    with pytest.raises(PublishRefused):
        stalled.publish(first, notification(1, b"late"), offset=9)
    assert stage.outputs() == []
    assert other.transport.position(first) == Position(0, "other's")


def test_what_the_group_refused_does_not_leave_with_the_next_publication(stage: KafkaStage) -> None:
    """kafka-python 3.0.12 keeps the offsets of a refused transaction and sends them with the next one."""
    stalled, other = thrown_out(stage)
    with pytest.raises(PublishRefused):
        stalled.transport.publish([PartitionOutput(each, (), Position(99, "refused")) for each in stage.partitions])
    stage.poll_until(lambda: stalled.read_to and len(other.read_to) == 1, "one each", stalled, other)
    (ours,), (theirs,) = stalled.read_to, other.read_to
    other.publish(theirs, metadata="other's", offset=0)
    # Who does not poll for a second is thrown out again, and a publication that is tried again would hide the mistake.
    stage.poll_until(lambda: stalled.holds(ours) and other.holds(theirs), "still one each", stalled, other)
    stalled.publish(ours, metadata="ours", offset=0)
    assert other.transport.position(theirs) == Position(0, "other's")


def test_a_partition_that_is_not_ours_is_not_published_for(stage: KafkaStage) -> None:
    """The brokers would accept it, because they check only the generation."""
    one, two = stage.worker(), stage.worker()
    stage.poll_until(lambda: len(one.read_to) == len(two.read_to) == 1, "one partition each", one, two)
    (theirs,) = two.read_to
    with pytest.raises(PublishRefused, match=f"not assigned to this worker at the moment: {theirs}"):
        one.publish(theirs, offset=5)
    assert two.transport.position(theirs) == Position(0, START)


def test_a_position_that_is_undecided_is_waited_for_a_while_and_told_once_it_is_decided(stage: KafkaStage) -> None:
    first, second = stage.partitions
    with stage.undecided_position(first, 3):
        worker = stage.worker()
        transport = worker.transport
        wait_until(lambda: transport.poll(1, 50) and transport.assignment(), "the assignment")
        with pytest.raises(TransportUnavailable, match=f"no position of {first} yet"):
            transport.position(first)
        assert transport.position(second) is None
    assert wait_until(lambda: _position(worker.transport, first), "its position") == Position(3, "")


def _position(transport: object, partition: object) -> Position | None:
    try:
        return transport.position(partition)
    except TransportUnavailable:
        return None


def test_while_a_position_is_undecided_its_partition_waits_and_the_others_are_read(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    same = stage.committed(first)
    with stage.undecided_position(first, *same[:2]):
        stage.rebalance(worker)
        stage.send(b"blocked")
        stage.send(b"continues", partition=1)
        stage.poll_until(lambda: b"continues" in worker.values(), "the record of the other partition", worker)
        assert worker.values() == [b"continues"]
    stage.poll_until(lambda: len(worker.records) == 2, "what was blocked", worker)


def test_however_many_positions_are_undecided_the_others_have_their_turn(kafka: KafkaServer) -> None:
    with closing(KafkaStage(kafka, partitions=6)) as stage, ExitStack() as undecided:
        worker = stage.worker()
        stage.settle(worker)
        for each in stage.partitions[:-1]:
            undecided.enter_context(stage.undecided_position(each, *stage.committed(each)[:2]))
        stage.rebalance(worker)
        stage.send(b"continues", partition=5)
        stage.poll_until(lambda: worker.values() == [b"continues"], "the record of the last partition", worker)


def test_what_came_in_the_very_poll_in_which_the_group_changed_is_read_again_once_it_is_ours(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    same = stage.committed(first)
    with stage.undecided_position(first, *same[:2]), stage.bystander() as joined:
        wait_until(worker.has_to_join, "word of the bystander")
        stage.send(b"blocked")
        polled = worker.poll(timeout_ms=10_000)
        assert (polled.records, polled.next_offsets) == ((), {})
        stage.poll_until(joined, "another generation", worker)
    stage.poll_until(lambda: worker.records, "what was blocked", worker)
    assert worker.values() == [b"blocked"]
    assert worker.taken_over.count(first) == 1


def test_a_poll_that_fails_after_records_have_come_loses_none_of_them(stage: KafkaStage, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = stage.worker()
    stage.settle(worker)
    stage.send(b"a", b"b")
    for name in ("find_snapshot", "take_disturbed"):
        with monkeypatch.context() as patch:
            patch.setattr(worker.transport._member, name, _fails)
            with pytest.raises(TransportUnavailable, match="planted"):
                worker.transport.poll(1, 5_000)
    stage.poll_until(lambda: len(worker.records) == 2, "both records", worker)
    assert worker.values() == [b"a", b"b"]


def _fails() -> None:
    raise TransportUnavailable("planted")


def test_a_leader_whose_followers_are_slow_to_join_again_does_not_fall_silent(stage: KafkaStage) -> None:
    """The leader joins again because the topic has grown. kafka-python 3.0.12 forgets that, unless the join ends
    within one poll.
    """
    one, two = (stage.worker(consumer={"metadata.max.age.ms": 300}) for _ in range(2))
    stage.poll_until(lambda: len(one.read_to) == len(two.read_to) == 1, "one partition each", one, two)
    with stage.kafka.admin() as admin:
        admin.create_partitions({stage.topics.input: 4})
    for each in (one, two):
        for _ in range(20):
            each.poll(timeout_ms=50)
    stage.poll_until(lambda: len(one.read_to) == len(two.read_to) == 2, "two partitions each", one, two)


def test_wakes_begin_no_rebalance_again(stage: KafkaStage) -> None:
    """If a wake ends a poll that joins, the client joins again as soon as it is answered: some dozen generations were seen."""
    one, two = stage.worker(), stage.worker()
    stage.settle(one)
    before, is_settled = one.transport._fencing.snapshot.membership.generation, Event()

    def wake() -> None:
        while not is_settled.is_set():
            pause_at_random(Random(), 0, 0.003)
            one.transport.wake()
            two.transport.wake()

    with another_thread(wake):
        try:
            stage.poll_until(lambda: len(one.read_to) == len(two.read_to) == 1, "one partition each", one, two)
        finally:
            is_settled.set()
    assert one.transport._fencing.snapshot.membership.generation <= before + 6


def test_what_a_killed_predecessor_left_open_is_ended_at_the_start(stage: KafkaStage) -> None:
    first, second = stage.partitions
    with stage.undecided_position(first, 3, transactional_id=f"{stage.group}-slot", is_killed=True):
        # Its transaction would time out long after the test.
        worker = stage.worker("slot")
        stage.poll_until(lambda: worker.holds(first, second), "the takeover", worker)
    assert worker.transport.position(first) == Position(0, START)


def test_members_of_a_static_group_come_back_to_their_partitions(stage: KafkaStage) -> None:
    one = stage.worker("one", consumer={"group.instance.id": "i1"})
    two = stage.worker("two", consumer={"group.instance.id": "i2"})
    stage.poll_until(lambda: len(one.read_to) == len(two.read_to) == 1, "one partition each", one, two)
    (mine,) = one.read_to
    one.transport.close()
    again = stage.worker("one", consumer={"group.instance.id": "i1"})
    stage.poll_until(lambda: again.read_to, "its partition", again, two)
    assert again.holds(mine)
    assert two.taken_over.count(mine) == 0


def test_a_publication_of_nothing_but_the_same_position_is_checked_all_the_same(stage: KafkaStage) -> None:
    """A zombie must not heal, and healing begins with this publication."""
    first, _ = stage.partitions
    stalled, _ = thrown_out(stage)
    with pytest.raises(PublishRefused):
        stalled.publish(first, metadata=START, offset=0)


def test_a_worker_takes_its_own_last_position_for_its_own(stage: KafkaStage) -> None:
    first, second = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    stage.send(b"a")
    wait_until(lambda: worker.poll().records, "the record")
    worker.publish(first, metadata='["t",1,1]')
    stage.rebalance(worker)
    worker.publish_at_last(first, metadata='["t",2,1]')
    worker.follow()
    assert worker.taken_over == [first, second]


def test_values_are_published_once_through_many_rebalances(stage: KafkaStage) -> None:
    first, _ = stage.partitions
    worker = stage.worker()
    stage.settle(worker)
    for number in range(5):
        stage.rebalance(worker)
        worker.publish_at_last(first, notification(number + 1, b"%d" % number), metadata=f"m{number}")
    assert values_of(stage.outputs()) == [b"0", b"1", b"2", b"3", b"4"]
