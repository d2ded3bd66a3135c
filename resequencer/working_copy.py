"""The working copy of a unit during one turn."""

from typing import Any

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError
from resequencer.effects import Effects
from resequencer.stash import Stashed
from resequencer.turn_context import TurnContext
from resequencer.unit import Remainder, Retry, Unit

WITHOUT_END = 1 << 62
"""The share of a turn that lets out everything."""


class WorkingCopy:
    """Changed in place by what happens in the turn, beside what that leads to; nothing outside ever sees it half done.

    `current` is the envelope that is dealt with at the moment: what is raised concerns this one (`poison`).
    `incomplete` is what was missing of what is being handled, `released_to` the highest offset of the release that this is
    part of. `tried` is what is tried again in this turn, `has_gathered` whether everything in the stash has given its data
    already, `is_changed` whether the storage has anything to learn. A turn lets out no more than about its `share` of bytes;
    what is left over then is the `remainder`, with what arrives behind it in the `queue`.
    """

    __slots__ = (
        "before",
        "context",
        "current",
        "data",
        "effects",
        "gathered_to",
        "handled",
        "has_gathered",
        "incomplete",
        "is_changed",
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
        self.tried: Retry | None = None
        self.remainder = unit.remainder
        self.queue = unit.queue
        self.share = share
        self.effects = Effects(unit, now)
        self.undecodable = self.effects.dead_letter_undecodable(share)
        self.is_changed = len(self.undecodable) < len(unit.undecodable)

    @property
    def is_free(self) -> bool:
        """Nothing is under retry and nothing was cut off: whatever is acceptable may be handled."""
        return self.retry is None and self.remainder is None

    @property
    def is_spent(self) -> bool:
        """The turn has let out its share."""
        return self.effects.let_out >= self.share

    def cut_off(self, lane: str | None = None) -> None:
        """The turn ends here, in the loop of this lane, and the next one goes on."""
        self.remainder = Remainder(lane, self.incomplete, self.released_to)

    @property
    def dependency(self) -> str | None:
        """The server that the head waits for, if it waits for one."""
        return None if self.retry is None else self.retry.dependency

    def tried_before(self, entry: Stashed) -> Retry | None:
        """What is known of it, if it is what is tried again in this turn."""
        return self.tried if self.tried is not None and self.tried.entry is entry else None

    def missing(self, entry: Stashed) -> str:
        try:
            return self.strategy.missing(self.state, entry.envelope)
        except PermanentError:
            return "unknown"

    def unit(self) -> Unit:
        """As it is now; the very one from before if nothing changed."""
        if not self.is_changed:
            return self.before
        unit = self.before.unit
        left = (self.undecodable, self.remainder, self.queue)
        return Unit(unit, self.state, self.stash, self.data, self.handled, self.retry, self.gathered_to, *left)
