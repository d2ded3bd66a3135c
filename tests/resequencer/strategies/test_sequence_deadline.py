"""SEQUENCE with lost numbers: only the deadline releases the next envelopes, and it releases all."""

import pytest
from harness.driving import Envelopes, drive
from hypothesis import given
from hypothesis import strategies as st

from resequencer.errors import PermanentError
from resequencer.unit import Wake


def test_a_lost_first_event_is_released_only_at_the_deadline(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(3), envelopes(2))
    assert unit.wake(Wake.DEADLINE, after_ms=20_999).output == []
    unit.wake(Wake.DEADLINE, after_ms=1)
    assert unit.sequences == [2, 3]
    assert [each.incomplete for each in unit.marks] == ["sequence:1", "sequence:1"]


def test_after_a_forced_one_the_next_in_order_waits_for_nothing(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(3))
    unit.expire()
    unit.arrive(envelopes(4))
    assert unit.sequences == [3, 4]
    assert unit.marks[-1].incomplete is None


def test_a_given_up_number_that_comes_late_is_handled_at_once_and_marked(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(3))
    unit.expire()
    unit.arrive(envelopes(1))
    assert unit.sequences == [3, 1]
    assert [each.late for each in unit.marks] == [False, True]


def test_a_late_number_is_not_counted_twice(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(2))
    unit.expire()
    unit.arrive(envelopes(1), envelopes(4), envelopes(3))
    assert unit.sequences == [2, 1, 3, 4]


def test_a_late_number_of_another_flow_is_not_counted_twice(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(2))
    unit.expire()
    unit.arrive(envelopes(1, flow="B"), envelopes(4), envelopes(3, flow="B"))
    assert unit.handled == [("A", 2), ("B", 1), ("B", 3), ("A", 4)]


def test_two_gaps_name_the_number_that_was_waited_for_at_each(envelopes):
    unit = drive("SEQUENCE")
    unit.arrive(envelopes(1), envelopes(3), envelopes(4), envelopes(7))
    unit.expire()
    assert unit.sequences == [1, 3, 4, 7]
    assert [each.incomplete for each in unit.marks] == [None, "sequence:2", "sequence:2", "sequence:5"]


def test_the_lowest_is_forced_first_and_ties_go_by_arrival(envelopes):
    unit = drive("SEQUENCE")
    first, second = envelopes(3, flow="B"), envelopes(3, flow="A")
    unit.arrive(envelopes(5), first, second)
    unit.expire()
    assert unit.handled == [("B", 3), ("A", 3), ("A", 5)]


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8)))
def test_whatever_is_lost_everything_that_came_leaves_once_and_in_order(order, lost):
    unit, envelopes = drive("SEQUENCE"), Envelopes()
    came = [number for number in order if number not in lost]
    for number in came:
        unit.arrive(envelopes(number))
    if unit.last is not None and unit.last.waits is not None:
        unit.expire()
    assert unit.sequences == sorted(came)
    assert unit.last is None or unit.last.waits is None


@pytest.mark.parametrize("strategy", ["SEQUENCE", "STRICT_SEQUENCE"])
def test_one_pass_over_the_stash_is_not_enough(envelopes, strategy):
    unit = drive(strategy)
    unit.arrive(*(envelopes(number) for number in (4, 3, 1, 2)))
    assert unit.sequences == [1, 2, 3, 4]


def test_a_dead_letter_counts_once_however_often_it_comes_again(envelopes):
    unit, second = drive("SEQUENCE"), envelopes(2)
    unit.handler.fail(second, PermanentError("no"), PermanentError("no"))
    unit.arrive(envelopes(1), second, envelopes.again(second), envelopes(4), envelopes(3))
    assert unit.sequences == [1, 3, 4]
    assert len(unit.dead) == 2


def test_a_requeued_dead_letter_is_late_only_if_a_later_one_was_handled(envelopes):
    for strategy in ("SEQUENCE", "STRICT_SEQUENCE"):
        for later, is_late in (((), False), ((envelopes(3),), True)):
            unit, second = drive(strategy), envelopes(2)
            unit.handler.fail(second, PermanentError("no"))
            unit.arrive(envelopes(1), second, *later, envelopes.again(second))
            assert unit.marks[-1].late is is_late, strategy


def test_two_envelopes_with_one_number_are_both_in_time(envelopes):
    for strategy in ("SEQUENCE", "STRICT_SEQUENCE"):
        unit = drive(strategy)
        unit.arrive(envelopes(1), envelopes(2), envelopes(2))
        assert unit.sequences == [1, 2, 2]
        assert not any(each.late for each in unit.marks)


def test_more_gaps_than_are_remembered_cost_a_mark_but_never_the_order(envelopes):
    unit = drive("SEQUENCE")
    for number in range(2, 200, 2):
        unit.arrive(envelopes(number))
        unit.expire()
    unit.arrive(envelopes(1), envelopes(201), envelopes(200), envelopes(199))
    assert unit.sequences[-4:] == [1, 199, 200, 201]


def test_what_comes_late_fills_what_is_missing_and_undoes_nothing(envelopes):
    unit = drive("SEQUENCE")
    late = envelopes(2, mds=["PAIN_001", "PAIN_001_PAYMENT_INSTRUCTION"])
    unit.arrive(envelopes(1), envelopes(3, mds=["PAIN_001"]))
    unit.expire()
    unit.arrive(late)
    _, data, marks, _ = unit.handler.seen[-1]
    assert marks.late
    assert data.find_mds("PAIN_001") == b'{"at":2}'
    assert data.find_mds("PAIN_001_PAYMENT_INSTRUCTION") == b'{"at":0}'
