"""How many examples a property test tries: its own number in `make test`, a fifth of it in `make check`."""

from hypothesis import settings

FULL = 100
"""The number of a test that names none."""
QUICK = 20


def examples(in_full: int) -> int:
    """Return how many of `in_full` examples this run tries. The profile of Hypothesis decides, when the test is defined."""
    return max(1, in_full * settings.default.max_examples // FULL)
