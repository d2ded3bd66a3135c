"""Delivery workers that die at any step, on a ledger whose transactions break: every promise of docs/delivery.md holds."""

import os
from collections import Counter
from itertools import count
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest
from harness.simulated_delivery.runs import replay_command, simulate

MINUTES = float(os.environ.get("SIMULATION_MINUTES", "0"))
FIRST_SEED = int(os.environ.get("SIMULATION_SEED", "10000"))


class Done(NamedTuple):
    """`ends` counts the rows by their ends."""

    crashes: int
    other_faults: int
    ends: Counter[str]


def live_through(seeds: range, directory: Path) -> Done:
    crashes = other_faults = 0
    ends: Counter[str] = Counter()
    for seed in seeds:
        own = directory / str(seed)
        own.mkdir()
        outcome = simulate(seed, own)
        crashes, other_faults, ends = crashes + outcome.crashes, other_faults + outcome.other_faults, ends + outcome.ends
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed)}"
    return Done(crashes, other_faults, ends)


def test_a_seed_runs_the_same_way_each_time(tmp_path: Path) -> None:
    traces = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        traces.append(simulate(3, tmp_path / name).trace)
    assert traces[0] == traces[1]


def test_some_runs_keep_every_promise(tmp_path: Path) -> None:
    done = live_through(range(5), tmp_path)
    assert done.crashes > 20
    assert done.other_faults > 10


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(2))
def test_many_runs_keep_every_promise(chunk: int, tmp_path: Path) -> None:
    """Each of these tests has some hundred crashes, and rows that end in each way."""
    done = live_through(range(100 + 30 * chunk, 100 + 30 * (chunk + 1)), tmp_path)
    assert done.crashes > 100
    assert set(done.ends) == {"processed", "rejected", "failed", "cancelled"}


@pytest.mark.slow
def test_runs_keep_them_for_as_long_as_one_likes(tmp_path: Path) -> None:
    """Do one run; `make soak` continues for half an hour (SIMULATION_MINUTES, from SIMULATION_SEED on)."""
    ends_at, crashes, other_faults = monotonic() + 60 * MINUTES, 0, 0
    for seed in count(FIRST_SEED):
        done = live_through(range(seed, seed + 1), tmp_path)
        crashes, other_faults = crashes + done.crashes, other_faults + done.other_faults
        if monotonic() >= ends_at:
            print(
                f"{seed + 1 - FIRST_SEED} seeds of delivery from {FIRST_SEED} on: {crashes} crashes, {other_faults} other faults"
            )
            return
