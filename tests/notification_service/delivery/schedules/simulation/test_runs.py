"""Delivery workers that die at any step, with clocks that are set: each key has one request at each tick."""

from typing import NamedTuple

import pytest
from harness.nightly import Search
from harness.simulated_schedules.runs import replay_command, simulate


class Done(NamedTuple):
    """`ahead` counts the ticks that were begun before their time."""

    crashes: int = 0
    other_faults: int = 0
    requests: int = 0
    ahead: int = 0


def live_through(seeds: range) -> Done:
    done = Done()
    for seed in seeds:
        outcome = simulate(seed)
        done = Done(*(before + new for before, new in zip(done, outcome[2:], strict=True)))
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed)}"
    return done


def test_a_seed_runs_the_same_way_each_time() -> None:
    assert simulate(4) == simulate(4)


def test_some_runs_keep_every_promise() -> None:
    done = live_through(range(10, 25))
    assert done.crashes > 50
    assert done.other_faults > 50
    assert done.requests > 500
    assert done.ahead > 1


@pytest.mark.nightly("schedules", minutes=4)
def test_whatever_the_seed_runs_keep_every_promise(search: Search) -> None:
    for seed in search.seeds():
        live_through(range(seed, seed + 1))
