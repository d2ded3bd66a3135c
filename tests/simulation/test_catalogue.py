"""Every fault of the protocol, planted in the real code: the simulation must notice it, or the simulation proves nothing."""

import re
from functools import cache
from pathlib import Path

import pytest
from harness.planted import protocol as plant
from simulation.catalogue import PLANTED, Planted, as_table
from simulation.runs import reference, simulate

_MOST_SEEDS = 120

_expected = cache(reference)


def test_the_documentation_lists_every_fault_with_the_seed_that_notices_it() -> None:
    page = Path(__file__).parents[2] / "docs" / "simulation.md"
    assert as_table() in page.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("planted", PLANTED, ids=[each.name for each in PLANTED])
def test_the_simulation_notices(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _find_noticing(planted, monkeypatch) is not None, f"no simulated run noticed {planted.name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "seed"), [(plant.dead_letters_count_as_handled, 49), (plant.a_release_goes_on_as_it_began, 163)]
)
def test_wrong_marks_are_noticed_where_what_is_expected_has_them_too(
    fault: plant.Fault, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    problems = (simulate(each).problem for each in (seed, *range(_MOST_SEEDS)))
    assert re.search("#[0-9] is (marked late|said to lack)", next(filter(None, problems)))


def _find_noticing(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> int | None:
    """Return a seed whose run fails with the fault: the known one, or the first. The expected output has no fault."""
    for seed in (planted.seed, *range(_MOST_SEEDS)):
        expected = _expected(seed, planted.run)
        with monkeypatch.context() as patch:
            planted.fault(patch)
            problem = simulate(seed, planted.run, expected).problem
        if problem is not None:
            assert not plant.is_misplaced(problem), problem
            return seed
    return None
