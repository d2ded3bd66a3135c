"""Workers on Kafka, killed, paused, thrown out of the group and left without answers: what leaves is what would anyway."""

import pytest
from crash_simulation import Forgets
from simulation.lives import reference, replay_command, simulate

_CHUNK = 15


def live_through(seeds: range, forgets: Forgets) -> int:
    """How many misfortunes it took."""
    misfortunes = 0
    for seed in seeds:
        outcome = simulate(seed, forgets)
        misfortunes += outcome.strikes
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed, forgets)}"
    return misfortunes


def test_a_seed_is_lived_through_the_same_way_each_time() -> None:
    assert simulate(3).trace == simulate(3).trace


def test_without_misfortune_everything_is_told_once_and_nothing_waits() -> None:
    for seed in range(20):
        outcome = reference(seed)
        assert outcome.problem is None, seed
        told = [each.identity for each in outcome.told]
        assert len(told) == len(set(told)), seed


@pytest.mark.parametrize("first", [0, 1])
def test_some_lives_are_free_of_loss_double_and_disorder(first: int) -> None:
    assert live_through(range(10 * first, 10 * first + 6), Forgets.NOTHING) > 1_000


def test_some_lives_with_a_storage_that_forgets_lose_nothing() -> None:
    live_through(range(5), Forgets.DATABASE)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(8))
def test_many_lives_are_free_of_loss_double_and_disorder(chunk: int) -> None:
    assert live_through(range(100 + _CHUNK * chunk, 100 + _CHUNK * (chunk + 1)), Forgets.NOTHING) > 2_000


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(4))
def test_many_lives_with_a_storage_that_forgets_lose_nothing_and_repeat_nothing_unmarked(chunk: int) -> None:
    live_through(range(100 + _CHUNK * chunk, 100 + _CHUNK * (chunk + 1)), Forgets.DATABASE)
