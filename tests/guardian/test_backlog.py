"""Deadlines that wait until the backlog is read."""

from guardian.timers import Backlog
from resequencer.batch import UnitKey
from resequencer.record import Partition

P0, P1 = Partition("T", 0), Partition("T", 1)
A, B, C = UnitKey(P0, "a"), UnitKey(P0, "b"), UnitKey(P1, "c")


def test_a_deadline_is_held_until_its_partition_was_read_up_to_the_end() -> None:
    backlog = Backlog()
    backlog.hold(A, 100)
    assert list(backlog.caught_up({P0: 99})) == []
    assert list(backlog.caught_up({P0: 100})) == [A]
    assert list(backlog.caught_up({P0: 100})) == []


def test_each_partition_is_read_for_itself() -> None:
    backlog = Backlog()
    backlog.hold(A, 100)
    backlog.hold(C, 10)
    assert list(backlog.caught_up({P0: 50, P1: 50})) == [C]


def test_a_partition_that_is_not_read_releases_no_unit() -> None:
    backlog = Backlog()
    backlog.hold(A, 0)
    assert list(backlog.caught_up({P1: 10**12})) == []


def test_an_empty_partition_holds_no_unit() -> None:
    backlog = Backlog()
    backlog.hold(A, 0)
    assert list(backlog.caught_up({P0: 0})) == [A]


def test_the_unit_that_came_first_goes_first() -> None:
    backlog = Backlog()
    backlog.hold(B, 10)
    backlog.hold(A, 20)
    assert list(backlog.caught_up({P0: 20})) == [B, A]


def test_a_unit_that_waits_anew_is_held_by_the_newer_end() -> None:
    """With the old end the new deadline would come while missing records may lie between both ends."""
    backlog = Backlog()
    backlog.hold(A, 100)
    backlog.hold(A, 500)
    assert list(backlog.caught_up({P0: 100})) == []
    assert len(backlog) == 1
    assert list(backlog.caught_up({P0: 500})) == [A]


def test_a_dropped_partition_is_forgotten_and_the_others_are_not() -> None:
    backlog = Backlog()
    backlog.hold(A, 1)
    backlog.hold(C, 1)
    backlog.drop(P0)
    assert list(backlog.caught_up({P0: 9, P1: 9})) == [C]
    assert len(backlog) == 0


def test_a_unit_that_is_held_again_and_again_takes_no_more_room_and_the_order_stays() -> None:
    backlog = Backlog()
    backlog.hold(B, 5)
    for end in range(10, 10_000):
        backlog.hold(A, end)
        backlog.hold(A, end)
    assert len(backlog._held[P0]) < 2_000
    assert list(backlog.caught_up({P0: 9_998})) == [B]
    assert list(backlog.caught_up({P0: 9_999})) == [A]
