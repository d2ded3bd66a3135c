"""What the arrivals of one unit teach: how long its stash waited for what it waited for, and how many envelopes each flow has."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from domain.clock import Instant
from domain.envelope import DataEnvelope
from enrichment.shapes import ANY
from resequencer.handlers.port import Handled, Marks
from resequencer.payment_data import PaymentData
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy
from resequencer.turn import decide
from resequencer.turn_context import TurnContext
from resequencer.unit import Unit

_MOST_FLOWS = 256
"""Of how many flows, by entity, a unit's envelopes are counted; what it has more of is counted nowhere."""


class Lesson(NamedTuple):
    """`entity` is a processing entity or `ANY`; the number is of milliseconds, or of envelopes."""

    entity: str
    flow: str
    number: int


class _Idle:
    """A handler that does nothing: when envelopes are handled does not depend on what comes of it."""

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        del envelope, data, marks, now
        return Handled()


def lesson_context(strategy: Strategy) -> TurnContext:
    """Nothing has a deadline here: what is asked is how long it would have had to be."""
    return TurnContext(strategy, _Idle(), ResequencerSettings(), Random(0))  # noqa: S311 - Nothing is tried again.


class UnitWaits:
    """One unit, by the service's own code. Give it the envelopes in the order of their arrival; it keeps what a unit keeps."""

    def __init__(self, unit: str, context: TurnContext) -> None:
        self._context = context
        self._unit = Unit(unit, context.strategy.initial())
        self._now: Instant = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def arrive(self, envelope: DataEnvelope, at: Instant) -> Iterator[Lesson]:
        """How long the oldest of the stash has waited, if this is what it waited for. No clock runs backwards here."""
        self._now = max(self._now, at)
        oldest = self._unit.stash.oldest
        self._unit, decision = decide(self._unit, (envelope,), (), self._now, self._context)
        if decision.tally.handled or decision.tally.stashed:  # A duplicate is neither.
            self._count(envelope)
        # What a bound releases has not waited to the end.
        if oldest is not None and not decision.releases and self._unit.stash.oldest is not oldest:
            for entity in _entities(oldest.envelope):
                yield Lesson(entity, oldest.envelope.flow, self._now - oldest.stashed_at)

    def events(self) -> Iterator[Lesson]:
        """How many envelopes there were of each flow; call it when everything has arrived."""
        for (entity, flow), count in self._counts.items():
            yield Lesson(entity, flow, count)

    def _count(self, envelope: DataEnvelope) -> None:
        for entity in _entities(envelope):
            if (entity, envelope.flow) in self._counts or len(self._counts) < _MOST_FLOWS:
                self._counts[entity, envelope.flow] += 1


def _entities(envelope: DataEnvelope) -> tuple[str, ...]:
    return (ANY,) if envelope.processing_entity is None else (envelope.processing_entity, ANY)


def rounded_up(number: int) -> int:
    """To three digits: so few different numbers can be counted exactly, and no deadline is shorter than what it is made of."""
    unit = int("1" + "0" * (len(str(number)) - 3))
    return -(-number // unit) * unit
