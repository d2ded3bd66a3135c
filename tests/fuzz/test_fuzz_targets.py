"""Each fuzz target checks its seeds, and changes to them from a fixed seed, so that the findings of `make fuzz` stay fixed."""

from random import Random

import pytest
from fuzz.targets import TARGETS, Target
from harness.nightly import Search

FAST = {"configuration": 25, "status-report": 40, "dead-letters": 60, "notification-settings": 200}
FAST_ANY = 500


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_the_properties_hold_of_the_seeds(name: str) -> None:
    seeds = TARGETS[name].seeds()
    assert len(seeds) >= 3
    for seed in seeds:
        TARGETS[name].check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_the_properties_hold_of_some_changes_to_the_seeds(name: str) -> None:
    check_changes(TARGETS[name], FAST.get(name, FAST_ANY), seed=1)


@pytest.mark.nightly("readers", minutes=0.5)
@pytest.mark.parametrize("name", TARGETS)
def test_whatever_the_seed_the_properties_hold_of_changes_to_the_seeds(name: str, search: Search) -> None:
    for seed in search.seeds():
        check_changes(TARGETS[name], FAST.get(name, FAST_ANY), seed)


def check_changes(target: Target, count: int, seed: int) -> None:
    """Check changed inputs; a failure shows how to repeat it."""
    rng, seeds = Random(seed), target.seeds()
    for _ in range(count):
        changed = target.mutate(rng, rng.choice(seeds), seeds, target.tokens)
        try:
            target.check(changed)
        except Exception:
            print(f"this fails: {changed!r}")
            raise


def test_a_target_that_is_wrong_about_something_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a decoder that accepts a sequence of 0. A fuzzer that cannot fail proves nothing."""
    monkeypatch.setattr(
        "notification_service.events.format._find_integer",
        lambda raw, lowest: int(raw) if raw.isdigit() and len(raw) < 16 else None,
    )
    with pytest.raises(AssertionError):
        check_changes(TARGETS["decoding"], 40 * FAST_ANY, seed=1)
