"""Every fault that a store prevents, planted in the real code: the simulation must notice it, or it proves nothing."""

from pathlib import Path

import pytest
from harness.planted.noticing import check_noticed
from harness.planted.protocol import Fault
from harness.planted.stores import SEEDS, counter_instead_of_transitions
from harness.simulated_stores.runs import simulate

_QUICK = (counter_instead_of_transitions,)


def test_the_documentation_names_this_catalogue_and_how_many_faults_it_has() -> None:
    page = Path(__file__).parents[4] / "docs" / "simulation.md"
    assert f"| `tests/harness/planted/stores.py` | {len(SEEDS)} |" in page.read_text(encoding="utf-8")


_EACH = [each if each in _QUICK else pytest.param(each, marks=pytest.mark.slow) for each in SEEDS]


@pytest.mark.parametrize("fault", _EACH, ids=lambda each: each.__name__)
def test_the_simulation_notices(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    def problem_of(seed: int) -> str | None:
        with monkeypatch.context() as patch:
            fault(patch)
            return simulate(seed).problem

    check_noticed(SEEDS[fault], problem_of)
