"""Regions whose workers are killed, paused, replaced and get no answers: each sink gets what it is promised."""

import pytest
from harness.nightly import Search
from simulation.regions.runs import RegionRun, Totals, reference, replay_command, simulate


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


@pytest.mark.nightly("simulation", minutes=4)
def test_whatever_the_seed_runs_keep_the_word_of_each_sink(search: Search) -> None:
    """A hundred seeds have twenty thousand kills, and six times as many other faults."""
    for seed in search.seeds():
        for run in RegionRun:
            live_through(range(seed, seed + 1), run)
