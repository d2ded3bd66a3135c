"""The stash as a value: its order, and the cost of one more envelope, which hardly depends on its size."""

import tracemalloc
from random import Random

import pytest
from harness.driving import Envelopes
from hypothesis import given
from hypothesis import strategies as st

from resequencer.stash import Stash, Stashed
from resequencer.strategies.port import Rank


def entries(count: int, lanes: int = 1, seed: int = 0) -> list[Stashed]:
    random, envelopes = Random(seed), Envelopes()
    return [
        Stashed(envelopes(number), Rank(f"lane-{random.randrange(lanes)}", random.randrange(count)), 0) for number in range(count)
    ]


@pytest.mark.slow
@given(st.integers(1, 700), st.integers(1, 4), st.randoms(use_true_random=False))
def test_whatever_comes_and_goes_each_lane_has_its_lowest_on_top(count: int, lanes: int, random: Random) -> None:
    stash, kept = Stash(), dict[int, Stashed]()
    for each in entries(count, lanes, random.randrange(1_000)):
        stash, kept[each.envelope.offset] = stash.add(each), each
        if random.random() < 0.3:
            gone = random.choice(list(kept.values()))
            stash = stash.without(gone)
            del kept[gone.envelope.offset]
    assert sorted(each.envelope.offset for each in stash) == sorted(kept)
    assert (len(stash), stash.size) == (len(kept), sum(each.size for each in kept.values()))
    assert stash.oldest is (kept[min(kept)] if kept else None)
    for each in kept.values():
        assert stash.ids.find(each.envelope.id_hash) == each.envelope.digest
    for lane in {each.rank.lane for each in kept.values()}:
        expected = sorted((each for each in kept.values() if each.rank.lane == lane), key=lambda each: each.order)
        taken = []
        while (top := stash.find_top(lane)) is not None:
            taken.append(top)
            stash = stash.without(top)
        assert taken == expected
    assert stash == Stash()


@pytest.mark.slow
def test_one_more_copies_little_of_a_stash_of_sixteen_thousand() -> None:
    *many, one = entries(16_001)
    stash = Stash()
    for each in many:
        stash = stash.add(each)
    for change in (lambda: stash.add(one), lambda: stash.without(many[7])):
        tracemalloc.start()
        change()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 20_000
