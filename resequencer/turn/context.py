"""The context of a turn: what a decision depends on beside state, input and time."""

from typing import Protocol

import msgspec

from resequencer.flow_profiles import Profiles
from resequencer.handlers.port import Handler
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy


class Chance(Protocol):
    """The source of jitter, for example `random.Random`."""

    def uniform(self, a: float, b: float) -> float: ...


class TurnContext(msgspec.Struct, frozen=True):
    """A worker's strategy, handler, settings, source of jitter, and flow profiles if there are any."""

    strategy: Strategy
    handler: Handler
    settings: ResequencerSettings
    chance: Chance
    profiles: Profiles | None = None
