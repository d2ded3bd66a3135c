"""The context of a turn: what a decision depends on beside state, input and time."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec.structs import force_setattr

from domain.envelope import DataEnvelope
from resequencer.flow_profiles import Profiles
from resequencer.handlers.port import Handler
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy


class Chance(Protocol):
    """The source of jitter, for example `random.Random`."""

    def uniform(self, a: float, b: float) -> float: ...


class TurnContext(msgspec.Struct, frozen=True):
    """A worker's strategy, handler, settings, source of jitter, and flow profiles if there are any.

    `step` and `gathers` are the strategy's, looked up once; `step` is None if it has none.
    """

    strategy: Strategy
    handler: Handler
    settings: ResequencerSettings
    chance: Chance
    profiles: Profiles | None = None
    step: Callable[[Any, DataEnvelope], tuple[Any, bool] | None] | None = None
    gathers: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "step", getattr(self.strategy, "step", None))
        force_setattr(self, "gathers", self.strategy.gathers)
