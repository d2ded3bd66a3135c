"""What decides in a turn beside state, input and time."""

from typing import Protocol

import msgspec

from resequencer.flow_profiles import Profiles
from resequencer.handlers.port import Handler
from resequencer.settings import ResequencerSettings
from resequencer.strategies.port import Strategy


class Chance(Protocol):
    """Where jitter comes from; `random.Random` is one."""

    def uniform(self, a: float, b: float) -> float: ...


class TurnContext(msgspec.Struct, frozen=True):
    """A worker's strategy, handler and settings, where its jitter comes from, and what is known of flows, if anything is."""

    strategy: Strategy
    handler: Handler
    settings: ResequencerSettings
    chance: Chance
    profiles: Profiles | None = None
