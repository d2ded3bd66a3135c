"""Workers on Kafka, killed, paused, removed from the group, without answers: the output is that of a run without faults."""

import os
from itertools import count
from time import monotonic
from typing import NamedTuple

import pytest
from simulation.runs import SimulatedRun, reference, replay_command, simulate

MINUTES = float(os.environ.get("SIMULATION_MINUTES", "0"))
FIRST_SEED = int(os.environ.get("SIMULATION_SEED", "10000"))
_CHUNK = 22


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
        told = [each.identity for each in outcome.told]
        assert len(told) == len(set(told)), seed


@pytest.mark.slow
@pytest.mark.parametrize("run", SimulatedRun)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 3), marks=pytest.mark.slow)], ids=str)
def test_some_runs_are_free_of_loss_double_and_disorder(seeds: range, run: SimulatedRun) -> None:
    assert live_through(seeds, run).injected_faults > 30 * len(seeds)


@pytest.mark.slow
@pytest.mark.parametrize("run", SimulatedRun)
@pytest.mark.parametrize("chunk", range(2))
def test_many_runs_are_free_of_loss_double_and_disorder(chunk: int, run: SimulatedRun) -> None:
    """All of these tests together have some five thousand kills, and seven times as many other faults."""
    assert live_through(range(100 + _CHUNK * chunk, 100 + _CHUNK * (chunk + 1)), run).kills > 100


@pytest.mark.slow
def test_runs_are_free_of_it_for_as_long_as_one_likes() -> None:
    """Do one run of each kind; `make soak` continues for half an hour (SIMULATION_MINUTES, from SIMULATION_SEED on)."""
    ends_at, first = monotonic() + 60 * MINUTES, FIRST_SEED
    kills = injected_faults = 0
    for seed in count(first):
        for run in SimulatedRun:
            done = live_through(range(seed, seed + 1), run)
            kills, injected_faults = kills + done.kills, injected_faults + done.injected_faults
        if monotonic() >= ends_at:
            print(f"{seed + 1 - first} seeds from {first} on: {kills} kills, {injected_faults} other injected_faults")
            return
