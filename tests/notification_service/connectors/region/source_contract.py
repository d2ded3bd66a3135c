"""The contract of sources (notification_service/connectors/region_port.py), as tests that each source runs on the real thing.

A source's test file derives from `SourceContract` and gives the fixture `harness`.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

import pytest
from harness.waiting import wait_until

from guardian.ports import Polled, Position, PublishRefused
from notification_service.connectors.region_port import Source
from resequencer.record import Partition, Record
from tests.notification_service.connectors.contract import WakeContract


class SourceHarness(Protocol):
    """Makes sources over two partitions, both empty at first."""

    partitions: Sequence[Partition]

    def make(self) -> Source:
        """Make a source as another process would, after the one before is closed."""
        ...

    def send(self, partition: Partition, *values: bytes) -> None: ...


class Intake:
    """A source, read as a worker reads it. `checkpoint` is what the storage would keep of a partition."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records: list[Record] = []
        self.next_offsets: dict[Partition, int] = {}
        self.states: dict[Partition, str] = {}
        self.ends: dict[Partition, int] = {}

    def seek(self, partition: Partition, offset: int = 0, state: str = "") -> None:
        self.source.position(partition)
        self.source.seek(partition, offset, state)
        self.next_offsets[partition], self.states[partition] = offset, state

    def poll(self, max_records: int = 2_000, resting: Collection[Partition] = ()) -> Polled:
        polled = self.source.poll(max_records, 50, resting)
        self.records += polled.records
        self.next_offsets |= polled.next_offsets
        self.states |= polled.source_states
        self.ends |= polled.ends
        return polled

    def read(self, count: int) -> list[bytes]:
        """Read until there are `count` records; return their values."""
        wait_until(lambda: (self.poll(count - len(self.records)), len(self.records) >= count)[1], f"{count} records")
        return [each.value for each in self.records]

    def read_all(self) -> list[bytes]:
        """Read until the ends that are known from now on are reached; return the values."""
        wait_until(lambda: (self.ends.clear(), self.poll(), self._is_through())[2], "the ends")
        return [each.value for each in self.records]

    def checkpoint(self, partition: Partition) -> tuple[int, str]:
        return self.next_offsets[partition], self.states[partition]

    def acknowledge(self, partition: Partition, offset: int | None = None) -> None:
        reached = self.next_offsets[partition] if offset is None else offset
        self.source.acknowledge({partition: Position(reached, f'["t",{reached},0]')})

    def _is_through(self) -> bool:
        return all(self.ends.get(each, offset + 1) <= offset for each, offset in self.next_offsets.items())


class SourceContract(WakeContract):
    """The tests of the contract. Derive from it in a file of its own, with the fixture `harness`."""

    @pytest.fixture
    def made(self, harness: SourceHarness):
        """Makes intakes. The source of the one before is closed, as a process that ends does, before the next is made."""
        alive: list[Source] = []

        def make() -> Intake:
            while alive:
                alive.pop().close()
            alive.append(source := harness.make())
            wanted = sorted(harness.partitions)
            wait_until(lambda: sorted(source.assignment()) == wanted or not source.poll(0, 50), "the assignment")
            return Intake(source)

        yield make
        while alive:
            alive.pop().close()

    @pytest.fixture
    def source(self, harness: SourceHarness, made) -> Source:
        intake = made()
        for each in harness.partitions:
            intake.seek(each)
        return intake.source

    def test_records_come_in_the_order_of_their_partition_each_once(self, harness: SourceHarness, made) -> None:
        one, two = harness.partitions
        harness.send(one, b"1", b"2")
        harness.send(two, b"3")
        harness.send(one, b"4")
        intake = made()
        for each in (one, two):
            intake.seek(each)
        intake.read(4)
        assert values(intake, one) == [b"1", b"2", b"4"]
        assert values(intake, two) == [b"3"]
        assert offsets(intake, one) == sorted(set(offsets(intake, one)))
        assert intake.poll().records == ()

    def test_what_is_not_sought_is_not_read(self, harness: SourceHarness, made) -> None:
        one, two = harness.partitions
        harness.send(one, b"1")
        harness.send(two, b"2")
        intake = made()
        intake.seek(two)
        assert intake.read(1) == [b"2"]
        assert intake.poll().records == ()

    def test_no_poll_brings_more_than_it_is_asked_for(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, *[b"%d" % each for each in range(7)])
        intake = made()
        intake.seek(one)
        sizes = []
        wait_until(lambda: (sizes.append(len(intake.poll(3).records)), len(intake.records) >= 7)[1], "all records")
        assert max(sizes) <= 3
        assert values(intake, one) == [b"%d" % each for each in range(7)]

    def test_a_poll_for_nothing_passes_nothing_over(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b"1")
        intake = made()
        intake.seek(one)
        polled = intake.poll(0)
        assert (polled.records, dict(polled.next_offsets)) == ((), {})
        assert intake.read(1) == [b"1"]

    def test_a_partition_that_rests_is_not_read_while_others_are(self, harness: SourceHarness, made) -> None:
        one, two = harness.partitions
        intake = made()
        for each in (one, two):
            intake.seek(each)
        harness.send(one, b"1")
        harness.send(two, b"2")
        wait_until(lambda: intake.poll(resting=[one]) and intake.records, "the other's record")
        intake.poll(resting=[one])
        assert [each.value for each in intake.records] == [b"2"]
        assert intake.read(2) == [b"2", b"1"]

    def test_an_end_is_reached_without_new_input(self, harness: SourceHarness, made) -> None:
        one, two = harness.partitions
        harness.send(one, b"1", b"2")
        intake = made()
        for each in (one, two):
            intake.seek(each)
        assert intake.read_all() == [b"1", b"2"]
        assert set(intake.ends) == {one, two}

    def test_offsets_go_on_beyond_three_digits(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        sent = [b"%d" % each for each in range(1_200)]
        harness.send(one, *sent)
        intake = made()
        intake.seek(one)
        while len(intake.records) < len(sent):
            intake.read(min(len(intake.records) + 400, len(sent)))
            intake.acknowledge(one)
        assert values(intake, one) == sent
        assert offsets(intake, one) == sorted(set(offsets(intake, one)))
        assert len(str(intake.next_offsets[one])) > 3

    def test_after_a_reset_what_was_not_committed_comes_again_in_order(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b"1", b"2", b"3", b"4")
        intake = made()
        intake.seek(one)
        intake.read(2)
        offset, state = intake.checkpoint(one)
        intake.acknowledge(one)
        intake.read(4)
        read = [(each.origin.offset, each.value) for each in intake.records[2:]]
        intake.records.clear()
        intake.seek(one, offset, state)
        intake.read(2)
        assert [(each.origin.offset, each.value) for each in intake.records] == read

    def test_after_a_crash_what_was_not_committed_comes_again_in_order(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, *[b"%d" % each for each in range(6)])
        intake = made()
        intake.seek(one)
        intake.read(2)
        offset, state = intake.checkpoint(one)
        intake.acknowledge(one)
        intake.read(5)
        again = made()
        again.seek(one, offset, state)
        assert again.read(4) == [b"2", b"3", b"4", b"5"]
        assert offsets(again, one)[0] == offset

    def test_after_a_crash_between_checkpoint_and_acknowledgement_nothing_comes_twice(self, harness: SourceHarness, made) -> None:
        """The delayed acknowledge of consistent regions: the storage has the records, and the source has not heard of it."""
        one, _ = harness.partitions
        harness.send(one, b"1", b"2", b"3")
        intake = made()
        intake.seek(one)
        intake.read(3)
        offset, state = intake.checkpoint(one)
        again = made()
        again.seek(one, offset, state)
        harness.send(one, b"4")
        assert again.read(1) == [b"4"]
        assert again.read_all() == [b"4"]
        again.acknowledge(one)

    def test_acknowledging_never_takes_what_came_later(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, *[b"%d" % each for each in range(6)])
        intake = made()
        intake.seek(one)
        intake.read(2)
        offset, state = intake.checkpoint(one)
        intake.read(5)
        intake.acknowledge(one, offset)
        again = made()
        again.seek(one, offset, state)
        assert again.read(4) == [b"2", b"3", b"4", b"5"]

    def test_acknowledging_twice_is_safe(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b"1", b"2")
        intake = made()
        intake.seek(one)
        intake.read(1)
        intake.acknowledge(one)
        intake.acknowledge(one)
        assert intake.read(2) == [b"1", b"2"]
        intake.acknowledge(one)

    def test_a_partition_that_is_not_assigned_is_refused(self, harness: SourceHarness, made) -> None:
        intake = made()
        for each in harness.partitions:
            intake.seek(each)
        intake.source.check_owned(harness.partitions)
        with pytest.raises(PublishRefused):
            intake.source.check_owned([Partition("another", 0)])

    def test_a_takeover_may_acknowledge_before_it_seeks_and_takes_nothing(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b"1")
        intake = made()
        intake.source.position(one)
        intake.source.check_owned([one])
        intake.source.acknowledge({one: Position(0, '["t",0,0]')})
        intake.seek(one)
        assert intake.read(1) == [b"1"]

    def test_a_position_is_kept_if_the_source_says_so(self, harness: SourceHarness, made) -> None:
        one, _ = harness.partitions
        harness.send(one, b"1")
        intake = made()
        intake.seek(one)
        intake.read(1)
        assert intake.source.position(one) is None
        intake.acknowledge(one)
        reached = intake.next_offsets[one]
        kept = Position(reached, f'["t",{reached},0]') if intake.source.capabilities.remembers else None
        for reader in (intake, made()):
            assert reader.source.position(one) == kept

    def test_a_log_has_the_same_name_after_each_start(self, harness: SourceHarness, made) -> None:
        first = [made().source.source(each) for each in harness.partitions]
        assert [made().source.source(each) for each in harness.partitions] == first

    def test_it_stands_among_those_who_know_what_is_theirs(self, harness: SourceHarness, made) -> None:
        standing = made().source.standing()
        assert standing.has_joined
        assert standing.notes == ()


def values(intake: Intake, partition: Partition) -> list[bytes]:
    return [each.value for each in intake.records if each.origin.partition == partition]


def offsets(intake: Intake, partition: Partition) -> list[int]:
    return [each.origin.offset for each in intake.records if each.origin.partition == partition]
