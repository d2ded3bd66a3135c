"""Fencing: which partitions a worker may read and publish for, by the group's answers and by the positions."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from notification_service.connectors.kafka.core.fencing import Committed, Fencing, Membership, Snapshot
from resequencer.record import Partition

P0, P1 = Partition("t", 0), Partition("t", 1)
HERE, MOVED = Committed(3, "ours"), Committed(4, "another's")


def group(generation: int, *assigned: Partition) -> Snapshot:
    return Snapshot(Membership(generation, "member", None), frozenset(assigned))


def holding(*partitions: Partition) -> Fencing:
    """Return a fencing that owns these partitions, read at `HERE` in generation 1."""
    fencing = Fencing()
    fencing.note_group(group(1, *partitions), set())
    for each in partitions:
        fencing.note_position(each, HERE)
        assert fencing.note_sought(each)
    return fencing


def test_nothing_is_ours_before_the_group_was_stable() -> None:
    fencing = Fencing()
    fencing.note_group(None, {P0})
    fencing.note_position(P0, HERE)
    assert fencing.assignment() == []
    assert not fencing.is_ours(P0)
    assert not fencing.note_sought(P0)


def test_what_was_read_and_sought_in_this_generation_is_readable() -> None:
    fencing = holding(P0)
    assert fencing.is_readable(P0)
    assert fencing.suspects() == []


def test_what_was_not_sought_is_ours_and_not_readable() -> None:
    fencing = Fencing()
    fencing.note_group(group(1, P0), set())
    fencing.note_position(P0, None)
    assert fencing.is_ours(P0)
    assert not fencing.is_readable(P0)


def test_a_new_generation_makes_every_partition_suspect() -> None:
    fencing = holding(P0, P1)
    fencing.note_group(group(2, P0, P1), set())
    assert fencing.suspects() == [P0, P1]
    assert fencing.not_owned([P0, P1]) == [P0, P1]
    assert not fencing.is_readable(P0)


def test_a_suspect_whose_position_was_not_moved_is_ours_again() -> None:
    fencing = holding(P0, P1)
    fencing.note_group(group(2, P0, P1), set())
    assert fencing.compare(P0, HERE)
    assert fencing.is_readable(P0)
    assert fencing.suspects() == [P1]
    assert fencing.assignment() == [P0, P1]


def test_a_suspect_whose_position_was_moved_is_left_out_once() -> None:
    fencing = holding(P0, P1)
    fencing.note_group(group(2, P0, P1), set())
    assert not fencing.compare(P0, MOVED)
    assert fencing.assignment() == [P1]
    assert fencing.assignment() == [P0, P1]
    assert not fencing.is_readable(P0)


def test_a_lost_partition_is_not_taken_back_before_it_was_left_out() -> None:
    fencing = holding(P0)
    fencing.lose(P0)
    fencing.note_position(P0, MOVED)
    assert not fencing.is_ours(P0)
    assert fencing.assignment() == []
    fencing.note_position(P0, MOVED)
    assert fencing.is_ours(P0)


def test_an_unstable_group_changes_nothing_but_what_was_taken_away() -> None:
    fencing = holding(P0, P1)
    fencing.note_group(None, {P1})
    assert fencing.assignment() == [P0]
    assert fencing.is_readable(P0)
    assert not fencing.is_ours(P1)


def test_what_was_taken_away_and_given_back_in_one_poll_is_left_out_once() -> None:
    fencing = holding(P0)
    fencing.note_group(group(3, P0), {P0})
    assert fencing.assignment() == []
    assert fencing.assignment() == [P0]


def test_what_was_taken_away_and_given_back_between_two_looks_is_left_out_once() -> None:
    """Two polls may come before the next look, the second after a refused publication."""
    fencing = holding(P0)
    fencing.note_group(group(2), set())
    fencing.note_group(group(3, P0), {P0})
    assert fencing.assignment() == []
    assert fencing.assignment() == [P0]


def test_what_is_assigned_to_another_worker_is_forgotten() -> None:
    fencing = holding(P0, P1)
    fencing.note_group(group(2, P1), set())
    assert fencing.assignment() == [P1]
    assert fencing.sought == {P1}
    fencing.note_group(group(3, P0, P1), set())
    assert fencing.assignment() == [P0, P1]
    assert not fencing.is_known(P0)


def test_a_position_that_was_none_and_is_still_none_is_not_another_workers() -> None:
    fencing = Fencing()
    fencing.note_group(group(1, P0), set())
    fencing.note_position(P0, None)
    fencing.note_group(group(2, P0), set())
    assert fencing.compare(P0, None)


class AnySimulatedRun(RuleBasedStateMachine):
    """Random generations, assignments and moves by others. A partition may be read only after a look since the last
    change of the group.
    """

    partitions = st.sampled_from([P0, P1])

    def __init__(self) -> None:
        super().__init__()
        self.fencing = Fencing()
        self.generation = 0
        self.moves = {P0: 0, P1: 0}
        self.looked_at: dict[Partition, tuple[int, int]] = {}
        self.must_be_left_out: set[Partition] = set()

    @rule(assigned=st.sets(partitions), disturbed=st.sets(partitions))
    def rebalance(self, assigned: set[Partition], disturbed: set[Partition]) -> None:
        self.generation += 1
        self.must_be_left_out |= {each for each in disturbed if each in self.fencing.sought}
        self.must_be_left_out &= assigned
        self.fencing.note_group(group(self.generation, *assigned), disturbed)

    @rule(partition=partitions)
    def another_worker_moves(self, partition: Partition) -> None:
        self.moves[partition] += 1

    @precondition(lambda self: self.fencing.snapshot is not None)
    @rule(partition=partitions)
    def take_over(self, partition: Partition) -> None:
        if partition in self.fencing.assignment():
            self.must_be_left_out.clear()
            self.fencing.note_position(partition, Committed(self.moves[partition], ""))
            self.looked_at[partition] = self.generation, self.moves[partition]
            self.fencing.note_sought(partition)
        self.must_be_left_out.clear()

    @rule()
    def look_again(self) -> None:
        for partition in self.fencing.suspects():
            if self.fencing.compare(partition, Committed(self.moves[partition], "")):
                self.looked_at[partition] = self.generation, self.moves[partition]
            else:
                self.must_be_left_out.add(partition)

    @rule()
    def ask(self) -> None:
        assert not self.must_be_left_out & set(self.fencing.assignment())
        self.must_be_left_out.clear()

    @invariant()
    def what_is_readable_was_looked_at_in_this_generation(self) -> None:
        for partition in (P0, P1):
            if self.fencing.is_readable(partition):
                assert self.looked_at[partition][0] == self.generation


TestAnySimulatedRun = AnySimulatedRun.TestCase


@given(st.integers(-1, 5), st.integers(-1, 5))
def test_any_other_position_is_another_owners(offset: int, other: int) -> None:
    fencing = holding(P0)
    fencing.note_position(P0, Committed(offset, "m"))
    fencing.note_group(group(2, P0), set())
    assert fencing.compare(P0, Committed(other, "m")) == (offset == other)
