"""How many examples a property test tries: a fifth of its own number by day, three times as many in `make nightly`."""

from hypothesis import settings

FULL = 100
"""The number of a test that names none."""
QUICK = 20
NIGHTLY = 300


def examples(in_full: int) -> int:
    """Return how many of `in_full` examples this run tries. The profile of Hypothesis decides, when the test is defined."""
    return max(1, in_full * settings.default.max_examples // FULL)
