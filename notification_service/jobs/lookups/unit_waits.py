"""Learns from the arrivals of one unit: how long its stash waited, and how many envelopes each flow has."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from notification_service.lookups.shapes import ANY
from resequencer.clock import Instant
from resequencer.envelope import DataEnvelope
from resequencer.handler import Handled, Marks
from resequencer.payment_data import PaymentData
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy
from resequencer.turn.decide import take_turn
from resequencer.turn.turn import TurnContext
from resequencer.unit import Unit

_MOST_FLOWS = 256
"""The most flows, by entity, that are counted in one unit; further ones are ignored."""


class Lesson(NamedTuple):
    """`entity` is a processing entity or `ANY`; `number` counts milliseconds or envelopes."""

    entity: str
    flow: str
    number: int


class _Idle:
    """A handler that does nothing: its result does not change when envelopes are handled."""

    def handle(self, envelope: DataEnvelope, data: PaymentData, marks: Marks, now: Instant) -> Handled:
        del envelope, data, marks, now
        return Handled()


def lesson_context(strategy: Strategy) -> TurnContext:
    """Return a context without deadlines: the lesson is how long a deadline would have had to be."""
    return TurnContext(strategy, _Idle(), ResequencerSettings(), Random(0))  # noqa: S311 - Never used: nothing is retried.


class UnitWaits:
    """Replays one unit with the service's own code. Call `arrive` for each envelope in order of arrival."""

    def __init__(self, unit: str, context: TurnContext) -> None:
        self._context = context
        self._unit = Unit(unit, context.strategy.initial())
        self._now: Instant = 0
        self._counts: Counter[tuple[str, str]] = Counter()

    def arrive(self, envelope: DataEnvelope, at: Instant) -> Iterator[Lesson]:
        """Replay an arrival; yield how long the oldest stashed envelope waited if this arrival ends its wait.

        Instants before the latest one count as the latest one.
        """
        self._now = max(self._now, at)
        oldest = self._unit.oldest
        turn = take_turn(self._unit, (envelope,), (), self._now, self._context)
        if turn.handled or turn.stashed:  # A duplicate is neither.
            self._count(envelope)
        # A stash that a bound releases has not waited to its end, so it teaches nothing.
        if oldest is not None and not turn.releases and self._unit.oldest is not oldest:
            for entity in _entities(oldest.envelope):
                yield Lesson(entity, oldest.envelope.flow, self._now - oldest.stashed_at)

    def events(self) -> Iterator[Lesson]:
        """Yield the number of envelopes of each flow; call it after the last arrival."""
        for (entity, flow), count in self._counts.items():
            yield Lesson(entity, flow, count)

    def _count(self, envelope: DataEnvelope) -> None:
        for entity in _entities(envelope):
            if (entity, envelope.flow) in self._counts or len(self._counts) < _MOST_FLOWS:
                self._counts[entity, envelope.flow] += 1


def _entities(envelope: DataEnvelope) -> tuple[str, ...]:
    return (ANY,) if envelope.processing_entity is None else (envelope.processing_entity, ANY)


def rounded_up(number: int) -> int:
    """Round up to three digits: few different numbers can be counted exactly, and no deadline becomes too short."""
    unit = int("1" + "0" * (len(str(number)) - 3))
    return -(-number // unit) * unit
