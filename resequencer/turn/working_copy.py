"""The working copy of a unit during one turn."""

from typing import Any

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError
from resequencer.stash import Stashed
from resequencer.turn.context import TurnContext
from resequencer.turn.effects import Effects
from resequencer.unit import Hold, Remainder, Retry, Unit

WITHOUT_END = 1 << 62
"""The share of a turn without a limit."""


class WorkingCopy:
    """The state and the effects of a unit, changed in place by the steps of a turn. Invisible outside the turn.

    `current` is the present envelope; an exception is attributed to it (poison.py). `incomplete` is what is missing for the
    envelope that is being handled. `released_to` is the highest offset of the release that it is part of; with `is_ordered` an
    order released it. `tried` is the retry that is attempted in this turn. `has_gathered` is set if the data of the whole stash
    was taken over. `is_changed` is set if there is something to store. A turn lets out about `share` bytes at most; the rest is
    the `remainder`, with later arrivals in the `queue`.
    """

    __slots__ = (
        "before",
        "context",
        "current",
        "data",
        "deadline_at",
        "effects",
        "gathered_to",
        "handled",
        "has_gathered",
        "hold",
        "incomplete",
        "is_changed",
        "is_ordered",
        "now",
        "queue",
        "released_to",
        "remainder",
        "retry",
        "share",
        "stash",
        "state",
        "strategy",
        "tried",
        "undecodable",
    )

    def __init__(self, unit: Unit, context: TurnContext, now: Instant, share: int = WITHOUT_END) -> None:
        self.before = unit
        self.context = context
        self.strategy = context.strategy
        self.now = now
        self.state: Any = unit.strategy_state
        self.stash = unit.stash
        self.data = unit.data
        self.handled = unit.handled
        self.retry = unit.retry
        self.gathered_to = unit.gathered_to
        self.has_gathered = False
        self.current: DataEnvelope | None = None
        self.incomplete: str | None = None
        self.released_to = -1
        self.is_ordered = False
        self.tried: Retry | None = None
        self.remainder = unit.remainder
        self.queue = unit.queue
        self.hold: Hold | None = unit.hold
        self.deadline_at = unit.deadline_at
        self.share = share
        self.effects = Effects(unit, now)
        self.undecodable = self.effects.dead_letter_undecodable(share)
        self.is_changed = len(self.undecodable) < len(unit.undecodable)

    @property
    def is_free(self) -> bool:
        """Whether acceptable envelopes may be handled: nothing is under retry, there is no remainder, and no hold."""
        return self.retry is None and self.remainder is None and self.hold is None

    @property
    def is_spent(self) -> bool:
        """Whether the turn's share is used up."""
        return self.effects.let_out >= self.share

    def cut_off(self, lane: str | None = None) -> None:
        """End the turn here, in the loop of this lane. The next turn continues."""
        self.remainder = Remainder(lane, self.incomplete, self.released_to, is_ordered=self.is_ordered)

    @property
    def dependency(self) -> str | None:
        """The server that the head waits for, None if it waits for none."""
        return None if self.retry is None else self.retry.dependency

    def tried_before(self, entry: Stashed) -> Retry | None:
        """Return the retry of this entry if it is attempted in this turn, else None."""
        return self.tried if self.tried is not None and self.tried.entry is entry else None

    def missing(self, entry: Stashed) -> str:
        try:
            return self.strategy.missing(self.state, entry.envelope)
        except PermanentError:
            return "unknown"

    def unit(self) -> Unit:
        """Return the unit as it is now. If nothing changed, it is the same object as before the turn."""
        if not self.is_changed:
            return self.before
        unit = self.before.unit
        deadline_at = self.deadline_at if self.stash else None
        left = (self.undecodable, self.remainder, self.queue, self.hold, deadline_at)
        return Unit(unit, self.state, self.stash, self.data, self.handled, self.retry, self.gathered_to, *left)
