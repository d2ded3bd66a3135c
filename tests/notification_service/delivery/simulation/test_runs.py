"""Delivery workers that die at any step, on a ledger whose transactions break: every promise of docs/delivery.md holds."""

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from harness.nightly import Search
from harness.simulated_delivery.runs import PAUSES_FROM, replay_command, simulate


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


def test_runs_in_which_the_receiver_is_paused_and_rows_are_called_now_keep_every_promise(tmp_path: Path) -> None:
    assert live_through(range(PAUSES_FROM, PAUSES_FROM + 3), tmp_path).crashes > 10


@pytest.mark.slow
def test_rows_end_in_each_way(tmp_path: Path) -> None:
    assert set(live_through(range(100, 110), tmp_path).ends) == {"processed", "rejected", "failed", "cancelled"}


@pytest.mark.nightly("delivery", minutes=4)
def test_whatever_the_seed_runs_keep_every_promise(search: Search, tmp_path: Path) -> None:
    for seed in search.seeds():
        live_through(range(seed, seed + 1), tmp_path)
