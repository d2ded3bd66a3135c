"""A unit's story as a picture: what happened when, from the first known instant to the last."""

from collections.abc import Iterator
from typing import NamedTuple

from notification_service.console.orders.listing import OrderState
from notification_service.console.units.story import UnitStory
from resequencer.clock import Instant, instant_of

_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 720, 26, 130, 20, 8
_MOST_MARKS = 200
"""Most marks per lane. Lanes of orders have no limit."""

_PROPOSALS = (OrderState.PROPOSED, OrderState.REJECTED, OrderState.EXPIRED)
_LANES = (
    ("left", "notifications"),
    ("stashed", "stashed"),
    ("dead", "dead letters"),
    ("order", "orders"),
    ("outcome", "outcomes"),
    ("due", "due"),
)


class Mark(NamedTuple):
    """A happening at (x, y). `kind` is one of those of `_LANES`; `text` says what it is."""

    x: float
    y: float
    kind: str
    at: Instant
    text: str


class Lane(NamedTuple):
    """A row of marks of one kind: its name and the height at which it lies."""

    name: str
    y: float


class Timeline(NamedTuple):
    """The picture. The wait, if there is one, is a bar from `wait_x` to `now_x`. All is in the units of the drawing."""

    width: int
    height: int
    marks: tuple[Mark, ...]
    lanes: tuple[Lane, ...]
    first: Instant
    last: Instant
    now_x: float
    wait_x: float | None
    left_edge: int = _LEFT
    right_edge: int = _WIDTH - _RIGHT

    @property
    def text(self) -> str:
        """The picture in words."""
        counts = [(name, sum(mark.kind == kind for mark in self.marks)) for kind, name in _LANES]
        return ", ".join(f"{count} {name if count > 1 else name.removesuffix('s')}" for name, count in counts if count)


def timeline_of(story: UnitStory) -> Timeline | None:
    """Return the picture, None where fewer than two instants are known beside the present one."""
    happened = sorted({*sorted(set(_happenings(story)))[:_MOST_MARKS], *_order_happenings(story)})
    if len(happened) < 2:
        return None
    now = instant_of(story.as_of)
    instants = [at for at, _, _ in happened]
    first, last = min(*instants, now), max(*instants, now)
    span = max(1, last - first)

    def x_of(at: Instant) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - first) / span, 1)

    kinds = [(kind, name) for kind, name in _LANES if any(kind == each for _, each, _ in happened)]
    heights = {kind: _TOP + _ROW * row + _ROW / 2 for row, (kind, _) in enumerate(kinds)}
    marks = tuple(Mark(x_of(at), heights[kind], kind, at, text) for at, kind, text in happened)
    lanes = tuple(Lane(name, heights[kind]) for kind, name in kinds)
    height = _TOP + _ROW * len(kinds) + 24
    wait_x = None if story.wait is None else x_of(instant_of(story.wait.since))
    return Timeline(_WIDTH, height, marks, lanes, first, last, x_of(now), wait_x)


def _happenings(story: UnitStory) -> Iterator[tuple[Instant, str, str]]:
    for each in story.left.found:
        if (at := _find_instant(each.created_at)) is not None:
            yield at, "left", f"{each.event} left"
    for stashed in story.state.stash if story.state else ():
        if (at := _find_instant(stashed.stashed_at)) is not None:
            yield at, "stashed", f"{stashed.flow} {stashed.sequence or ''} stashed"
    for letter in story.dead_letters.found:
        if (at := _find_instant(letter.at)) is not None:
            yield at, "dead", f"dead letter {letter.reason}"
    if story.wait is not None:
        yield instant_of(story.wait.until), "due", story.wait.kind


def _order_happenings(story: UnitStory) -> Iterator[tuple[Instant, str, str]]:
    for each in story.told_orders:
        verb = "proposed" if each.state in _PROPOSALS else "ordered"
        yield instant_of(each.at), "order", f"{each.order} {verb} by {each.by}: {each.because}"
        if each.ended_at is not None:
            yield instant_of(each.ended_at), "outcome", f"{each.order}: {each.result_or_state}: {each.text or ''}"


def _find_instant(text: str | None) -> Instant | None:
    """Return the instant of a text that another program may have written, None if it is none."""
    try:
        return None if text is None else instant_of(text)
    except ValueError:
        return None
