"""WINDOW: order by time, or by numbers that may have gaps, among the events that come within some time of each other."""

from collections.abc import Callable
from enum import StrEnum

from msgspec.structs import replace

from resequencer.clock import Instant
from resequencer.event import Event
from resequencer.strategies.port import Rank, StrategyState

WINDOW = "window"
"""What an event waits for."""


class OrderBy(StrEnum):
    TIME = "time"
    SEQUENCE = "sequence"


class Released(StrategyState, frozen=True, array_like=True, gc=False):
    """The highest time or number that was released, None before the first. Dead letters do not count.

    `before` is what it was before the last event was counted. `dead_lettered` goes back to it.
    """

    highest: int | None = None
    before: int | None = None


class Window:
    """An event waits `window_ms` and leaves then, with all that come before it; whatever comes meanwhile takes its place.

    For sources whose numbers have gaps, as a counter of a whole database, or that have times alone. What comes after a higher one
    was released leaves at once, and is late. `name` identifies the states of this order.
    """

    gathers = False
    state_type = Released
    releases_by_wait = True

    def __init__(self, order_by: OrderBy, window_ms: int) -> None:
        self.name = f"WINDOW[{order_by.value}]"
        self.needs_sequence = order_by is OrderBy.SEQUENCE
        self.needs_time = order_by is OrderBy.TIME
        self._window_ms = window_ms
        self._place: Callable[[Event], int] = _number_of if self.needs_sequence else _time_of

    def initial(self) -> Released:
        return Released()

    def arrived(self, envelope: Event, at: Instant) -> Event:
        """Return the event as it counts. A time beyond the window is that of a clock that is ahead: the arrival counts."""
        if self.needs_time and _time_of(envelope) > at + self._window_ms:
            return replace(envelope, time=at)
        return envelope

    def rank(self, envelope: Event) -> Rank:
        return Rank("", self._place(envelope))

    def observe(self, state: Released, envelope: Event) -> Released:
        """Return the state unchanged, because only what is released counts."""
        del envelope
        return state

    def accepts(self, state: Released, envelope: Event) -> bool:
        return state.highest is not None and self._place(envelope) <= state.highest

    def handled(self, state: Released, envelope: Event) -> Released:
        place, highest = self._place(envelope), state.highest
        return Released(place if highest is None or place > highest else highest, highest)

    def forced(self, state: Released, envelope: Event) -> Released:
        return self.handled(state, envelope)

    def dead_lettered(self, state: Released, envelope: Event) -> Released:
        """Return the state as if it had not been released: what is before it is not late, and it may come again in its place."""
        del envelope
        return Released(state.before, state.before)

    def is_late(self, state: Released, envelope: Event) -> bool:
        return state.highest is not None and self._place(envelope) < state.highest

    def missing(self, state: Released, envelope: Event) -> str:
        del state, envelope
        return WINDOW


def _time_of(envelope: Event) -> int:
    assert envelope.time is not None, "the format ensures that it exists if the strategy needs one"
    return envelope.time


def _number_of(envelope: Event) -> int:
    assert envelope.sequence is not None, "the format ensures that it exists if the strategy needs one"
    return envelope.sequence
