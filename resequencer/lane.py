"""A lane of the stash: an ordered sequence whose first item is its top. The cost of an insertion hardly grows with its length."""

from bisect import bisect_left
from operator import attrgetter
from typing import Protocol, TypeAlias, TypeVar

_MOST = 128


class LaneItem(Protocol):
    """An item of a lane. No two items have the same `order`."""

    @property
    def order(self) -> tuple[int, int]: ...


T = TypeVar("T", bound=LaneItem)

Lane: TypeAlias = tuple[tuple[T, ...], ...]
"""Ascending chunks of 1 to 128 items. To add or remove an item copies one chunk and the references to the others."""

_order = attrgetter("order")


def with_one(lane: Lane[T], one: T) -> Lane[T]:
    """Return the lane with this item in its place."""
    if not lane:
        return ((one,),)
    at = _find_chunk(lane, one)
    chunk = lane[at]
    before = bisect_left(chunk, one.order, key=_order)
    return (*lane[:at], *_halved((*chunk[:before], one, *chunk[before:])), *lane[at + 1 :])


def without_one(lane: Lane[T], one: T) -> Lane[T]:
    """Return the lane without this item, which must be in it."""
    at = _find_chunk(lane, one)
    chunk = lane[at]
    before = bisect_left(chunk, one.order, key=_order)
    assert chunk[before] is one, "only what is in the lane leaves it"
    rest = (*chunk[:before], *chunk[before + 1 :])
    return (*lane[:at], rest, *lane[at + 1 :]) if rest else (*lane[:at], *lane[at + 1 :])


def _find_chunk(lane: Lane[T], one: T) -> int:
    """Return the index of the first chunk that does not end before the item, or of the last chunk."""
    return min(bisect_left(lane, one.order, key=_last_order), len(lane) - 1)


def _last_order(chunk: tuple[LaneItem, ...]) -> tuple[int, int]:
    return chunk[-1].order


def _halved(chunk: tuple[T, ...]) -> Lane[T]:
    return (chunk,) if len(chunk) <= _MOST else (chunk[: _MOST // 2], chunk[_MOST // 2 :])
