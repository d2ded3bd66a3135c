"""The stash of a unit: its order, what it knows of itself, and its undo."""

from random import Random

import pytest
from harness.driving import Envelopes
from hypothesis import given
from hypothesis import strategies as st

from resequencer.unit import Entry, Unit, entry_of, place_of


def entries(count: int, lanes: int = 1, seed: int = 0) -> list[Entry]:
    random, envelopes = Random(seed), Envelopes()
    return [entry_of(envelopes(number), f"lane-{random.randrange(lanes)}", random.randrange(count), 0) for number in range(count)]


@pytest.mark.slow
@given(st.integers(1, 300), st.integers(1, 4), st.randoms(use_true_random=False))
def test_whatever_comes_and_goes_each_lane_has_its_lowest_on_top(count: int, lanes: int, random: Random) -> None:
    unit, kept = Unit("u", None), dict[int, Entry]()
    for each in entries(count, lanes, random.randrange(1_000)):
        unit.add(each)
        kept[each.offset] = each
        if random.random() < 0.3:
            gone = random.choice(list(kept.values()))
            unit.remove(gone)
            del kept[gone.offset]
        assert unit.oldest is (kept[min(kept)] if kept else None)
        assert unit.lowest is min(kept.values(), key=place_of, default=None)
    assert (len(unit.stash), unit.stashed_bytes) == (len(kept), sum(each.size for each in kept.values()))
    for each in kept.values():
        assert unit.has(each)
        assert unit.find_digest(each.envelope.id_hash) == each.envelope.digest
    assert unit.lanes == sorted({each.lane for each in kept.values()})
    for lane in unit.lanes:
        expected = sorted((each for each in kept.values() if each.lane == lane), key=place_of)
        taken = []
        while (top := unit.find_top(lane)) is not None:
            taken.append(top)
            unit.remove(top)
        assert taken == expected
    assert (unit.stash, unit.stashed_bytes, unit.oldest, unit.lowest) == ([], 0, None, None)


@given(st.integers(0, 20), st.randoms(use_true_random=False))
def test_what_was_done_to_it_is_undone_as_often_as_asked(count: int, random: Random) -> None:
    unit, (*some, more) = Unit("u", None), entries(count + 1, 2, random.randrange(100))
    for each in some:
        unit.add(each)
    saved, before = unit.saved(), list(unit.stash)
    for _ in range(2):
        unit.add(more)
        for each in random.sample(before, len(before) // 2):
            unit.remove(each)
        unit.restore(saved)
        assert (unit.stash, unit.stashed_bytes) == (before, sum(each.size for each in before))
        assert all(unit.has(each) for each in before)
        assert unit.find_digest(more.envelope.id_hash) is None
        assert unit.oldest is min(before, key=lambda each: each.offset, default=None)
