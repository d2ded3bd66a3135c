"""The offsets that are done beyond a position (guardian/positions.py)."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardian.positions import CHARACTERS_PER_RECORD, MAX_CHARACTERS, DoneOffsets, decode, encode, longest

OFFSETS = st.integers(0, 2**40)


def of(undone: set[int], end: int) -> DoneOffsets:
    """Add the offsets one by one, which is the simple way."""
    ranges: list[range] = []
    for offset in sorted(undone):
        if ranges and ranges[-1].stop == offset:
            ranges[-1] = range(ranges[-1].start, offset + 1)
        else:
            ranges.append(range(offset, offset + 1))
    return DoneOffsets(end, tuple(ranges))


@st.composite
def positions_with_done_offsets(draw: st.DrawFn) -> tuple[int, DoneOffsets]:
    position = draw(OFFSETS)
    length = draw(st.one_of(st.integers(1, 300), st.integers(1, 10**9)))
    undone = draw(st.sets(st.integers(0, length - 1), max_size=60))
    return position, of({position + each for each in undone}, position + length)


@pytest.mark.slow
@given(positions_with_done_offsets())
def test_what_is_encoded_comes_back(drawn: tuple[int, DoneOffsets]) -> None:
    position, done = drawn
    text = encode(position, done)
    if text:
        assert decode(position, text) == done
    else:
        assert not any(done.is_done(offset) for offset in range(position, min(done.end, position + 1_000)))


@given(OFFSETS, st.text("rbAB9_-gh", max_size=30) | st.text(max_size=30))
def test_forged_text_is_nothing_or_an_encoding_like_any_other(position: int, text: str) -> None:
    done = decode(position, text)
    assert done is None or encode(position, done) == text


@pytest.mark.parametrize("text", ["", "A", "g", "BA!", "BB", "BgA", "BAA", "BABA", "__________", "BÄ", '["a",1]', "_" * 4_000])
def test_what_is_no_encoding_is_nothing(text: str) -> None:
    assert decode(5, text) is None


def test_it_says_what_is_done_and_what_is_not() -> None:
    done = DoneOffsets(110, (range(103, 105), range(107, 108)))
    assert [offset for offset in range(100, 115) if not done.is_done(offset)] == [103, 104, 107, 110, 111, 112, 113, 114]


def test_nothing_done_beyond_a_position_takes_no_text() -> None:
    assert encode(100, DoneOffsets(100)) == ""
    assert encode(100, DoneOffsets(120, (range(100, 120),))) == ""


def test_a_million_done_offsets_take_some_characters_and_an_undone_one_a_few_more() -> None:
    assert len(encode(0, DoneOffsets(1_000_000))) == 5
    assert len(encode(0, DoneOffsets(1_000_000, (range(500_000, 500_001),)))) <= 10


@pytest.mark.parametrize("every", [2, 3, 5])
def test_twenty_two_thousand_offsets_fit_whatever_they_look_like(every: int) -> None:
    done = DoneOffsets(22_000, tuple(range(offset, offset + 1) for offset in range(0, 22_000, every)))
    text = encode(0, done)
    assert len(text) <= MAX_CHARACTERS
    assert decode(0, text) == done


@given(positions_with_done_offsets(), st.integers(0, 2**29))
def test_one_more_record_adds_no_more_than_it_may(drawn: tuple[int, DoneOffsets], gap: int) -> None:
    position, done = drawn
    after = done.advanced(done.end + gap + 1, [*done.undone, range(done.end + gap, done.end + gap + 1)])
    # The length at the front may grow, too.
    assert len(encode(position, after)) <= max(len(encode(position, done)), 9) + CHARACTERS_PER_RECORD + 6


@given(positions_with_done_offsets(), st.randoms(use_true_random=False), st.floats(0, 1))
def test_whatever_of_it_gets_done_it_takes_no_more_than_the_longest(
    drawn: tuple[int, DoneOffsets], random: Random, share: float
) -> None:
    position, done = drawn
    left = {each for undone in done.undone for each in undone if random.random() < share}
    moved = random.randint(position, min(left, default=done.end))
    assert len(encode(moved, of(left, done.end))) <= longest(position, done)


@pytest.mark.parametrize("every", [1, 2, 3, 7, 40])
def test_a_long_range_of_which_every_other_gets_done_fits_if_its_longest_does(every: int) -> None:
    whole = DoneOffsets(30_000, (range(30_000),))
    assert len(encode(0, whole)) < 10 < MAX_CHARACTERS < longest(0, whole) < 5_010
    assert len(encode(0, of(set(range(0, 30_000, every)), 30_000))) <= longest(0, whole)


@given(st.sets(st.integers(0, 30)), st.integers(0, 31), st.integers(0, 40), st.sets(st.integers(0, 40)))
def test_what_was_done_once_stays_done(undone: set[int], end: int, read_to: int, unsettled: set[int]) -> None:
    before = of({each for each in undone if each < end}, end)
    now = {each for each in unsettled if each < read_to}
    after = before.advanced(read_to, of(now, read_to).undone)
    for offset in range(45):
        is_settled_now = offset < read_to and offset not in now
        assert after.is_done(offset) == (before.is_done(offset) or is_settled_now), offset


@given(positions_with_done_offsets(), st.integers(0, 2**41))
def test_what_is_not_done_before_an_offset_is_what_is_not_done_before_it(drawn: tuple[int, DoneOffsets], offset: int) -> None:
    _, done = drawn
    undone = done.undone_before(offset)
    assert all(each and each.stop <= offset for each in undone)
    for place in {offset - 1, done.end, *(each.start for each in done.undone), *(each.stop for each in done.undone)}:
        assert any(place in each for each in undone) == (0 <= place < offset and not done.is_done(place))
