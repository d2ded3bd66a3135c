"""Positions of records that were settled out of order: promise 1 of docs/design.md, section 2."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardian.positions import Head, Positions


def positions_of(offsets: Sequence[int], next_offset: int, start: int = 0) -> Positions:
    positions = Positions(start)
    positions.read(offsets, next_offset, now=0)
    return positions


def settled(positions: Positions, *offsets: int, now: int = 0) -> Positions:
    for offset in offsets:
        positions.settle(offset, now)
    return positions


def test_nothing_is_acknowledged_while_the_first_record_is_unsettled() -> None:
    positions = settled(positions_of([0, 1, 2], 3), 2, 1)
    assert positions.acknowledged == 0


def test_the_first_one_settled_acknowledges_all_that_was_settled_behind_it() -> None:
    positions = settled(positions_of([0, 1, 2, 3], 4), 2, 1, 0)
    assert positions.acknowledged == 3


def test_when_all_is_settled_the_position_is_where_reading_goes_on() -> None:
    """Byte offsets of lines and Kafka's control records leave gaps between offsets, also after the last record."""
    positions = settled(positions_of([0, 120, 255], 391), 255, 0, 120)
    assert positions.acknowledged == 391


def test_a_gap_in_the_numbers_is_no_gap_in_what_was_delivered() -> None:
    positions = settled(positions_of([10, 25, 70], 90, start=10), 10)
    assert positions.acknowledged == 25


def test_a_poll_that_delivers_nothing_may_still_move_the_position() -> None:
    positions = positions_of([], 17, start=10)
    assert positions.acknowledged == 17
    assert positions.has_moved()


def test_an_offset_may_be_settled_twice() -> None:
    positions = settled(positions_of([0, 1, 2], 3), 1, 1, 0, 0)
    assert positions.acknowledged == 2


def test_an_offset_between_two_delivered_ones_settles_neither() -> None:
    positions = settled(positions_of([0, 10], 20), 5)
    assert positions.acknowledged == 0


def test_an_offset_that_was_never_delivered_is_a_mistake_and_not_overheard() -> None:
    with pytest.raises(AssertionError, match="delivered"):
        positions_of([0, 1], 2).settle(2, now=0)


def test_delivering_backwards_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="ascending"):
        positions_of([0, 1], 2).read([1], 2, now=0)
    with pytest.raises(AssertionError, match="forward"):
        positions_of([0, 1], 2).read([], 1, now=0)


@pytest.mark.slow
def test_a_million_settled_behind_one_head_are_one_gap() -> None:
    positions = Positions(0)
    for start in range(0, 1_000_000, 1_000):
        positions.read(range(start, start + 1_000), start + 1_000, now=start)
        for offset in range(start + (start == 0), start + 1_000):
            positions.settle(offset, now=start)
    assert positions.unsettled == (range(1),)
    assert positions.head == Head(0, 0)


def test_a_million_unsettled_of_consecutive_numbers_are_one_gap() -> None:
    assert positions_of(range(1_000_000), 1_000_000).unsettled == (range(1_000_000),)


def test_the_head_says_since_when_it_holds_the_position_back() -> None:
    positions = Positions(0)
    assert positions.head is None
    positions.read([0, 1, 2], 3, now=100)
    assert positions.head == Head(0, 100)
    positions.settle(1, now=200)
    assert positions.head == Head(0, 100)
    positions.settle(0, now=300)
    assert positions.head == Head(2, 300)
    positions.settle(2, now=400)
    assert positions.head is None


def test_a_head_that_never_ends_keeps_its_instant_while_others_come_and_go() -> None:
    positions = positions_of([0], 1)
    for now in range(1, 100):
        positions.read([now], now + 1, now)
        positions.settle(now, now)
    assert positions.head == Head(0, 0)


def test_the_first_move_is_due_at_once() -> None:
    positions = positions_of([0], 1)
    assert not positions.due(5, throttle_ms=1_000)
    assert settled(positions, 0).due(5, throttle_ms=1_000)


def test_the_next_is_due_only_after_the_throttle() -> None:
    positions = settled(positions_of([0, 1], 2), 0)
    positions.note_acknowledged(positions.acknowledged, now=5_000)
    settled(positions, 1)
    assert not positions.due(5_999, throttle_ms=1_000)
    assert positions.due(6_000, throttle_ms=1_000)


def test_nothing_is_due_while_the_position_stands() -> None:
    positions = settled(positions_of([0, 1], 2), 0)
    positions.note_acknowledged(positions.acknowledged, now=0)
    assert not positions.due(1_000_000, throttle_ms=1_000)


def test_the_last_one_on_the_way_down_ignores_the_throttle() -> None:
    positions = settled(positions_of([0, 1], 2), 0)
    positions.note_acknowledged(positions.acknowledged, now=0)
    assert not positions.has_moved()
    settled(positions, 1)
    assert positions.has_moved()
    assert not positions.due(1, throttle_ms=1_000)


def test_a_clock_that_was_set_back_does_not_silence_it() -> None:
    positions = settled(positions_of([0, 1], 2), 0)
    positions.note_acknowledged(positions.acknowledged, now=3_600_000)
    assert settled(positions, 1).due(0, throttle_ms=1_000)


def test_what_moved_after_an_acknowledgement_was_sent_is_due_again() -> None:
    positions = settled(positions_of([0, 1], 2), 0)
    sent = positions.acknowledged
    settled(positions, 1)
    positions.note_acknowledged(sent, now=0)
    assert positions.has_moved()


def test_acknowledging_what_is_not_settled_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="loses records"):
        positions_of([0, 1], 2).note_acknowledged(1, now=0)


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[list[int], int, list[int]]]]:
    """Draw a start and polls: the delivered offsets, where reading continues, and all offsets that are settled by then."""
    start = at = draw(st.integers(0, 5))
    polls = []
    outstanding: list[int] = []
    for _ in range(draw(st.integers(0, 6))):
        offsets = []
        for _ in range(draw(st.integers(0, 6))):
            offsets.append(at + draw(st.integers(0, 3)))
            at = offsets[-1] + 1
        at += draw(st.integers(0, 3))
        outstanding += offsets
        chosen = draw(st.lists(st.sampled_from(outstanding), max_size=8)) if outstanding else []
        polls.append((offsets, at, chosen))
    return start, polls


@given(histories())
def test_it_agrees_with_a_set_of_offsets(history: tuple[int, list[tuple[list[int], int, list[int]]]]) -> None:
    start, polls = history
    positions, model, head, since = Positions(start), set[int](), None, 0
    before = start
    for now, (offsets, next_offset, chosen) in enumerate(polls):
        positions.read(offsets, next_offset, now)
        model |= set(offsets)
        for offset in chosen:
            positions.settle(offset, now)
            model.discard(offset)
        if min(model, default=None) != head:
            head, since = min(model, default=None), now
        assert positions.acknowledged == min(model, default=next_offset)
        assert positions.head == (None if head is None else Head(head, since))
        assert [each for gap in positions.unsettled for each in gap] == sorted(model)
        assert len(positions.unsettled) == sum(offset - 1 not in model for offset in model)
        assert positions.acknowledged >= before
        before = positions.acknowledged


@given(st.permutations(range(8)))
def test_in_whatever_order_all_are_settled_the_end_is_acknowledged(order: list[int]) -> None:
    positions = settled(positions_of(range(0, 80, 10), 85), *(offset * 10 for offset in order))
    assert positions.acknowledged == 85
    assert positions.unsettled == ()
