"""The worker is killed at every step, and loses answers and partitions: the output is that of a run without faults."""

import re

import msgspec
import pytest
from harness.crashes.outcomes import Forgets
from harness.crashes.simulation import crash_at, reference, replay_command, simulate
from harness.nightly import Search
from harness.workloads.shuffled import workload, workload_of_strategies

SMALL = 11
"""The seed of the workload whose steps are all struck, one per run."""

_PARTS = 3


def assert_all_is_well(seeds: range, forgets: Forgets) -> int:
    """Check the run of each seed. Return how often the worker was killed."""
    crashes = 0
    for seed in seeds:
        outcome = simulate(seed, forgets)
        crashes += outcome.crashes
        assert outcome.problem is None, f"{outcome.problem}\nreplay it with: {replay_command(seed, forgets)}"
    return crashes


def find_identity(line: bytes) -> str | None:
    """Return the envelope id in a line or a value, None in garbage."""
    found = re.search(rb'"uniqueId":"(uow-[^"]+)"', line)
    return found[1].decode() if found else None


@pytest.mark.slow
def test_without_a_crash_every_envelope_is_told_or_dead_lettered_once_and_nothing_waits() -> None:
    for seed in range(20):
        work, outcome = workload(seed), reference(workload(seed))
        assert outcome.problem is None, seed
        lines = [line for phase in work.phases for _, line in phase.lines]
        came = {identity for line in lines if (identity := find_identity(line)) is not None}
        identities = [each.identity for each in outcome.notifications]
        dead_lettered = [find_identity(each.value) for each in outcome.dead if each.reason == "handler-failed"]
        assert len(identities) == len(set(identities)), seed
        assert not set(identities) & set(dead_lettered), seed
        assert set(identities) | set(dead_lettered) == came, seed
        garbage = [each for each in outcome.dead if each.reason not in ("handler-failed", "conflicting-duplicate")]
        assert len(garbage) == sum(find_identity(line) is None for line in lines), seed


@pytest.mark.slow
def test_units_of_one_numbering_without_a_loss_are_told_in_exact_order_whatever_crashes() -> None:
    ordered = 0
    for seed in range(10):
        if workload(seed).plan.strategy != "SEQUENCE":
            continue
        outcome = simulate(seed)
        for unit in {each.unit for each in outcome.notifications} - outcome.remembered.forgettable:
            mine = [each for each in outcome.notifications if each.unit == unit]
            if not any(each.incomplete or each.is_late for each in mine):
                assert [each.sequence for each in mine] == sorted(each.sequence or 0 for each in mine), replay_command(seed)
                ordered += 1
    assert ordered > 10


@pytest.mark.slow
def test_crashes_lost_answers_and_other_owners_lose_double_and_mark_nothing() -> None:
    assert assert_all_is_well(range(6), Forgets.NOTHING) > 40


@pytest.mark.slow
def test_crashes_change_nothing_with_the_strategies_of_other_events() -> None:
    works = {seed: workload_of_strategies(seed) for seed in range(30)}
    assert {work.plan.strategy for work in works.values()} == {"PREVIOUS", "WINDOW", "SEQUENCE", "STRICT_SEQUENCE"}
    for seed, work in works.items():
        outcome = simulate(seed, work=work)
        assert outcome.problem is None, f"{seed}: {outcome.problem}"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_a_crash_before_or_after_each_step_of_a_workload_changes_nothing_and_loses_and_doubles_no_fact(part: int) -> None:
    work = workload(SMALL)
    work = work._replace(plan=msgspec.structs.replace(work.plan, rotate_bytes=1_000, has_facts=True))
    expected = reference(work)
    assert len(expected.facts) == len(expected.notifications) > 5
    for step in range(1 + part, expected.steps + 1, _PARTS):
        outcome = crash_at(work, step, expected)
        assert outcome.problem is None, f"{outcome.problem} after {outcome.trace}"
        assert (outcome.crashes, len(outcome.facts)) == (1, len(expected.facts))


@pytest.mark.slow
@pytest.mark.parametrize("forgets", [Forgets.DATABASE, Forgets.POSITIONS])
def test_after_a_storage_forgot_or_positions_were_damaged_nothing_is_lost_and_what_repeats_is_marked(forgets: Forgets) -> None:
    assert_all_is_well(range(3), forgets)


@pytest.mark.nightly("crashes", minutes=4)
def test_whatever_the_seed_crashes_lose_and_double_nothing(search: Search) -> None:
    for seed in search.seeds():
        for forgets in Forgets:
            assert_all_is_well(range(seed, seed + 1), forgets)
        outcome = simulate(seed, work=workload_of_strategies(seed))
        assert outcome.problem is None, f"{seed} of the other strategies: {outcome.problem}"
