"""Workers on Kafka, killed, paused, removed from the group, without answers: the output is that of a run without faults."""

from typing import NamedTuple

import pytest
from harness.nightly import SEED, Search
from simulation.runs import SimulatedRun, reference, replay_command, simulate


class Finished(NamedTuple):
    """`injected_faults` are all faults except the kills."""

    kills: int
    injected_faults: int


def live_through(seeds: range, run: SimulatedRun) -> Finished:
    kills = injected_faults = 0
    for seed in seeds:
        outcome = simulate(seed, run)
        kills, injected_faults = kills + outcome.crashes, injected_faults + outcome.strikes - outcome.crashes
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed, run)}"
    return Finished(kills, injected_faults)


@pytest.mark.slow
def test_a_seed_runs_the_same_way_each_time() -> None:
    assert simulate(3).trace == simulate(3).trace


@pytest.mark.slow
def test_without_faults_everything_is_told_once_and_nothing_waits() -> None:
    for seed in range(12):
        outcome = reference(seed)
        assert outcome.problem is None, seed
        identities = [each.identity for each in outcome.notifications]
        assert len(identities) == len(set(identities)), seed


@pytest.mark.slow
@pytest.mark.parametrize("run", SimulatedRun)
def test_some_runs_are_free_of_loss_double_and_disorder(run: SimulatedRun) -> None:
    assert live_through(range(3), run).injected_faults > 90


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "run"), [(1_795_788_335, SimulatedRun.CLOCKS)])
def test_what_the_night_found_is_free_of_it(seed: int, run: SimulatedRun) -> None:
    live_through(range(seed, seed + 1), run)


@pytest.mark.nightly("simulation")
def test_a_hundred_runs_in_which_the_handler_waits_are_free_of_it() -> None:
    """They have some three thousand kills, many of them in the midst of calls."""
    assert live_through(range(SEED, SEED + 100), SimulatedRun.CALLS).kills > 1_000


@pytest.mark.nightly("simulation", minutes=10)
def test_whatever_the_seed_runs_are_free_of_loss_double_and_disorder(search: Search) -> None:
    """Fifty seeds have some five thousand kills, and seven times as many other faults."""
    for seed in search.seeds():
        for run in SimulatedRun:
            live_through(range(seed, seed + 1), run)
