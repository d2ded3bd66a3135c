"""Workers on Kafka, killed, paused, thrown out of the group and left without answers: what leaves is what would anyway."""

import os
from itertools import count
from time import monotonic
from typing import NamedTuple

import pytest
from simulation.lives import Life, reference, replay_command, simulate

MINUTES = float(os.environ.get("SIMULATION_MINUTES", "0"))
FIRST_SEED = int(os.environ.get("SIMULATION_SEED", "10000"))
_CHUNK = 22


class Lived(NamedTuple):
    """`misfortunes` are all but the kills."""

    kills: int
    misfortunes: int


def live_through(seeds: range, life: Life) -> Lived:
    kills = misfortunes = 0
    for seed in seeds:
        outcome = simulate(seed, life)
        kills, misfortunes = kills + outcome.crashes, misfortunes + outcome.strikes - outcome.crashes
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed, life)}"
    return Lived(kills, misfortunes)


def test_a_seed_is_lived_through_the_same_way_each_time() -> None:
    assert simulate(3).trace == simulate(3).trace


def test_without_misfortune_everything_is_told_once_and_nothing_waits() -> None:
    for seed in range(12):
        outcome = reference(seed)
        assert outcome.problem is None, seed
        told = [each.identity for each in outcome.told]
        assert len(told) == len(set(told)), seed


@pytest.mark.parametrize("life", Life)
def test_some_lives_are_free_of_loss_double_and_disorder(life: Life) -> None:
    assert live_through(range(3), life).misfortunes > 200


@pytest.mark.slow
@pytest.mark.parametrize("life", Life)
@pytest.mark.parametrize("chunk", range(4))
def test_many_lives_are_free_of_loss_double_and_disorder(chunk: int, life: Life) -> None:
    """Twenty-four of these are more than ten thousand kills, and seven times as much else that goes wrong."""
    assert live_through(range(100 + _CHUNK * chunk, 100 + _CHUNK * (chunk + 1)), life).kills > 100


@pytest.mark.slow
def test_lives_are_free_of_it_for_as_long_as_one_likes() -> None:
    """By itself one of each kind; `make soak` goes on for half an hour (SIMULATION_MINUTES, from SIMULATION_SEED on)."""
    ends_at, first = monotonic() + 60 * MINUTES, FIRST_SEED
    kills = misfortunes = 0
    for seed in count(first):
        for life in Life:
            lived = live_through(range(seed, seed + 1), life)
            kills, misfortunes = kills + lived.kills, misfortunes + lived.misfortunes
        if monotonic() >= ends_at:
            print(f"{seed + 1 - first} seeds from {first} on: {kills} kills, {misfortunes} other misfortunes")
            return
