"""Store workers that die at any step, on a broker whose markers come late: each command counts once, each report leaves once."""

from typing import NamedTuple

import pytest
from harness.nightly import Search
from harness.simulated_stores.runs import replay_command, simulate


class Done(NamedTuple):
    """`applied` counts offsets of commands, `completions` reports."""

    crashes: int = 0
    other_faults: int = 0
    applied: int = 0
    completions: int = 0


def live_through(seeds: range) -> Done:
    done = Done()
    for seed in seeds:
        outcome = simulate(seed)
        done = Done(*(before + new for before, new in zip(done, outcome[2:], strict=True)))
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed)}"
    return done


def test_a_seed_runs_the_same_way_each_time() -> None:
    assert simulate(3)[1:] == simulate(3)[1:]


@pytest.mark.slow
def test_some_runs_keep_every_promise() -> None:
    done = live_through(range(6))
    assert done.other_faults > 100
    assert done.completions > 10


@pytest.mark.nightly("stores", minutes=4)
def test_whatever_the_seed_runs_keep_every_promise(search: Search) -> None:
    """Sixty seeds have four hundred kills and four thousand other faults."""
    for seed in search.seeds():
        live_through(range(seed, seed + 1))
