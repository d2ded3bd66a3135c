"""What a strategy is asked. A user's own implements the same (`package.module:Class`)."""

from typing import Any, NamedTuple, Protocol

import msgspec

from domain.envelope import DataEnvelope


class StrategyState(msgspec.Struct, frozen=True, array_like=True):
    """The base of what a strategy remembers of a unit: immutable all the way down, written to storage as MessagePack."""


class Rank(NamedTuple):
    """Where an envelope stands in the stash: lowest `place` first within its `lane`, ties by arrival.

    Only the top of a lane is ever looked at: what is below it must not be acceptable before it. Lanes are independent:
    handling an envelope may make acceptable what is in its own lane, and nothing in another.
    """

    lane: str
    place: int


class Strategy(Protocol):
    """Decides whether an envelope is handled now. Pure: the same arguments give the same answer.

    `name` identifies the state it makes, with the keys it was configured with. With `needs_sequence` a record without a
    valid sequence is a dead letter. With `gathers` the data of everything stashed is taken over on completion (in order
    of arrival) before anything is handled; without it an envelope's data is taken over when the envelope is handled.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs_sequence(self) -> bool: ...

    @property
    def gathers(self) -> bool: ...

    @property
    def state_type(self) -> type[StrategyState]: ...

    def initial(self) -> Any:
        """The state of a unit that nothing was heard of."""
        ...

    def rank(self, envelope: DataEnvelope) -> Rank: ...

    def observe(self, state: Any, envelope: DataEnvelope) -> Any:
        """The state with this envelope seen; called once for every envelope that arrives, before `accepts`."""
        ...

    def accepts(self, state: Any, envelope: DataEnvelope) -> bool:
        """Whether it may be handled now."""
        ...

    def handled(self, state: Any, envelope: DataEnvelope) -> Any:
        """The state after it was handled in its turn."""
        ...

    def forced(self, state: Any, envelope: DataEnvelope) -> Any:
        """The state after it was handled out of its turn, at a deadline or a bound; what it overtook is given up."""
        ...

    def dead_lettered(self, state: Any, envelope: DataEnvelope) -> Any:
        """The state, after `handled` or `forced`, of a unit in which this one became a dead letter instead: it may come again."""
        ...

    def is_late(self, state: Any, envelope: DataEnvelope) -> bool:
        """Whether it follows a later one that was handled; asked before `handled`. Dead letters were not handled."""
        ...

    def missing(self, state: Any, envelope: DataEnvelope) -> str:
        """What this envelope waits for, as the header `incomplete` says it."""
        ...
