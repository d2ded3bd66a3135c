"""Store workers that die at any step, on a broker whose markers come late: each command counts once, each report leaves once."""

import os
from itertools import count
from time import monotonic
from typing import NamedTuple

import pytest
from harness.simulated_stores.runs import replay_command, simulate

MINUTES = float(os.environ.get("SIMULATION_MINUTES", "0"))
FIRST_SEED = int(os.environ.get("SIMULATION_SEED", "10000"))


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


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_many_runs_keep_every_promise(chunk: int) -> None:
    """Each of these tests has a hundred kills, a thousand other faults and half as many commands."""
    done = live_through(range(100 + 16 * chunk, 100 + 16 * (chunk + 1)))
    assert done.crashes > 30
    assert done.completions > 30


@pytest.mark.slow
def test_runs_keep_them_for_as_long_as_one_likes() -> None:
    """Do one run; `make soak` continues for half an hour (SIMULATION_MINUTES, from SIMULATION_SEED on)."""
    ends_at, done = monotonic() + 60 * MINUTES, Done()
    for seed in count(FIRST_SEED):
        done = Done(*map(sum, zip(done, live_through(range(seed, seed + 1)), strict=True)))
        if monotonic() >= ends_at:
            print(f"{seed + 1 - FIRST_SEED} seeds of stores from {FIRST_SEED} on: {done}")
            return
