"""The order in which the processes of a run take the tests: slow ones first, so that all do not wait for one at the end."""

from collections import defaultdict
from collections.abc import Sequence

import pytest


def slow_first(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Return the items so that each process begins with slow ones, a module of them at a time, which share what it sets up.

    With `--dist worksteal` each process gets an equal share of the list, and steals from the end of another one's.
    """
    modules: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    quick: list[pytest.Item] = []
    for each in items:
        if each.get_closest_marker("slow"):
            modules[each.nodeid.partition("::")[0]].append(each)
        else:
            quick.append(each)
    ordered: list[pytest.Item] = []
    slow = list(modules.values())
    for process in range(processes):
        share = [each for module in slow[process::processes] for each in module]
        size = (len(items) - len(ordered)) // (processes - process)
        fill = max(0, size - len(share))
        ordered += share + quick[:fill]
        del quick[:fill]
    ordered += quick
    assert len(ordered) == len(items), "none is left out"
    return ordered
