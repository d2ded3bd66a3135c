"""Workers on Kafka, killed, paused, thrown out of the group and left without answers: what leaves is what would anyway."""

import re

import pytest
from simulation.lives import Life, reference, replay_command, simulate

_CHUNK = 15


def live_through(seeds: range, life: Life) -> int:
    """How many misfortunes it took."""
    misfortunes = 0
    for seed in seeds:
        outcome = simulate(seed, life)
        misfortunes += outcome.strikes
        if life is Life.NONE and _is_a_late_duplicate(outcome.problem):
            continue
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed, life)}"
    return misfortunes


def _is_a_late_duplicate(problem: str | None) -> bool:
    """Without a storage, a second copy that comes when its unit is not remembered any more is told again (decision 14)."""
    return problem is not None and re.fullmatch(r"told (\d) times: .*, which came \1 times", problem) is not None


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
    assert live_through(range(3), life) > 200


@pytest.mark.slow
@pytest.mark.parametrize("life", Life)
@pytest.mark.parametrize("chunk", range(4))
def test_many_lives_are_free_of_loss_double_and_disorder(chunk: int, life: Life) -> None:
    """Sixteen of these are more than forty thousand misfortunes."""
    assert live_through(range(100 + _CHUNK * chunk, 100 + _CHUNK * (chunk + 1)), life) > 1_500
