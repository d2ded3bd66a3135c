"""Bugs of our own: a handler or a strategy that raises an unexpected error on some envelopes.

An unexpected error must cost the same as a `PermanentError` of the same code. So the reference of a simulated run raises
`PermanentError`, and the run itself raises another error.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple

from notification_service.payments.envelope import DataEnvelope
from resequencer.errors import PermanentError
from resequencer.strategies.port import Strategy


class Place(StrEnum):
    """Where the code fails: when the envelope comes, when it is handled, or when it is counted after that."""

    OBSERVED = "observed"
    HANDLED = "handled"
    COUNTED = "counted"


class Mistakes(NamedTuple):
    """The places of failure by envelope id."""

    places: Mapping[str, Place] = {}
    is_foreseen: bool = False

    def look(self, place: Place, envelope: DataEnvelope) -> None:
        if self.places.get(envelope.envelope_id) is place:
            raise PermanentError("as foreseen") if self.is_foreseen else ArithmeticError("a mistake of ours")


def drawn_mistakes(random: Random, identities: list[str]) -> dict[str, Place]:
    """Draw mistakes: in every second run, on one envelope of twelve."""
    if random.random() < 0.5:
        return {}
    places = (Place.OBSERVED, Place.HANDLED, Place.HANDLED, Place.COUNTED)
    return {each: random.choice(places) for each in identities if random.random() < 0.08}


def faltering(strategy: Strategy, mistakes: Mistakes) -> Strategy:
    """Return the strategy with these mistakes; without mistakes, return the strategy itself."""
    return _Faltering(strategy, mistakes) if mistakes.places else strategy


class _Faltering:
    def __init__(self, strategy: Strategy, mistakes: Mistakes) -> None:
        self._strategy = strategy
        self._mistakes = mistakes

    def __getattr__(self, name: str) -> Any:
        if name == "step":
            raise AttributeError(name)  # It would go past the steps that fail here.
        return getattr(self._strategy, name)

    def observe(self, state: Any, envelope: DataEnvelope) -> Any:
        self._mistakes.look(Place.OBSERVED, envelope)
        return self._strategy.observe(state, envelope)

    def handled(self, state: Any, envelope: DataEnvelope) -> Any:
        self._mistakes.look(Place.COUNTED, envelope)
        return self._strategy.handled(state, envelope)

    def forced(self, state: Any, envelope: DataEnvelope) -> Any:
        self._mistakes.look(Place.COUNTED, envelope)
        return self._strategy.forced(state, envelope)
