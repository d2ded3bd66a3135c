"""Regions whose workers are killed, paused, replaced and get no answers: each sink gets what it is promised."""

import os
from itertools import count
from time import monotonic

import pytest
from simulation.regions.runs import RegionRun, Totals, reference, replay_command, simulate

MINUTES = float(os.environ.get("SIMULATION_MINUTES", "0"))
FIRST_SEED = int(os.environ.get("SIMULATION_SEED", "10000"))
_CHUNK = 50


def live_through(seeds: range, run: RegionRun) -> Totals:
    totals = Totals()
    for seed in seeds:
        outcome = simulate(seed, run)
        totals = totals.with_run(outcome)
        assert outcome.problem is None, f"{outcome.region}: {outcome.problem}\nreplay it with: {replay_command(seed, run)}"
    return totals


def test_a_seed_runs_the_same_way_each_time() -> None:
    assert simulate(7).trace == simulate(7).trace


def test_without_faults_everything_is_told_once_and_nothing_waits() -> None:
    for seed in range(10):
        assert reference(seed).problem is None, seed


@pytest.mark.parametrize("run", RegionRun)
def test_some_runs_keep_the_word_of_each_sink(run: RegionRun) -> None:
    totals = live_through(range(12), run)
    assert totals.crashes > 100
    assert totals.takeovers > 300


@pytest.mark.slow
@pytest.mark.parametrize("run", RegionRun)
@pytest.mark.parametrize("chunk", range(2))
def test_many_runs_keep_the_word_of_each_sink(chunk: int, run: RegionRun) -> None:
    """These ten tests have twenty thousand kills, and six times as many other faults."""
    assert live_through(range(100 + _CHUNK * chunk, 100 + _CHUNK * (chunk + 1)), run).crashes > 1_000


@pytest.mark.slow
def test_regions_keep_it_for_as_long_as_one_likes() -> None:
    """Do one run of each kind; `make soak` continues for half an hour (SIMULATION_MINUTES, from SIMULATION_SEED on)."""
    ends_at, totals = monotonic() + 60 * MINUTES, Totals()
    for seed in count(FIRST_SEED):
        for run in RegionRun:
            totals = totals.plus(live_through(range(seed, seed + 1), run))
        if monotonic() >= ends_at:
            print(f"{totals.runs} runs of regions from seed {FIRST_SEED} on: {totals}")
            return
