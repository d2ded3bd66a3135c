"""The order of a run's tests: slow ones first in each process's share, and none is left out."""

from typing import Any, NamedTuple

import pytest
from harness.order import slow_first


class Item(NamedTuple):
    nodeid: str
    is_slow: bool

    def get_closest_marker(self, name: str) -> object:
        return name == "slow" and self.is_slow


def made(name: str, count: int, *, is_slow: bool) -> list[Item]:
    return [Item(f"{name}::test_{number}", is_slow) for number in range(count)]


QUICK = made("quick", 20, is_slow=False)
FIRST, SECOND, THIRD = (made(name, 3, is_slow=True) for name in ("first", "second", "third"))


def ordered(items: Any, processes: int) -> Any:
    return slow_first(items, processes)


def test_each_process_begins_with_slow_modules_and_keeps_their_order() -> None:
    mixed = [*FIRST, *QUICK[:10], *SECOND, *QUICK[10:], *THIRD]
    found = ordered(mixed, 2)
    share = len(mixed) // 2
    assert found[:share] == [*FIRST, *THIRD, *QUICK[:8]]
    assert found[share:] == [*SECOND, *QUICK[8:]]


@pytest.mark.parametrize("processes", range(1, 9))
@pytest.mark.parametrize("items", [QUICK, FIRST + SECOND, QUICK[:2] + FIRST + SECOND + THIRD, []], ids=len)
def test_none_is_left_out_and_none_comes_twice(items: list[Item], processes: int) -> None:
    assert sorted(ordered(items, processes)) == sorted(items)
