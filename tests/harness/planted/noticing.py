"""Whether a simulation notices a planted fault: with the seed that its catalogue names, or the test fails."""

from collections.abc import Callable

import pytest
from harness.planted.protocol import is_misplaced

_MAX_SEEDS = 150


def check_noticed(seed: int, problem_of: Callable[[int], str | None]) -> None:
    """Fail unless the run of `seed` has a problem, which `problem_of` returns for a seed; name another seed whose run has one.

    A search in each run of the tests would hide that it costs more with each change of the service.
    """
    problem = problem_of(seed)
    if problem is None:
        other = next((each for each in range(_MAX_SEEDS) if problem_of(each) is not None), None)
        known = f"seed {other} does: write it into the catalogue" if other is not None else "no seed does"
        pytest.fail(f"the run of seed {seed} does not notice the fault any more; {known}")
    assert not is_misplaced(problem), problem
