"""The interface of strategies. A user's own strategy (`package.module:Class`) implements it too."""

from typing import Any, NamedTuple, Protocol

import msgspec

from resequencer.event import Event


class StrategyState(msgspec.Struct, frozen=True, array_like=True):
    """The base class of a strategy's state of a unit: deeply immutable, written to the storage as MessagePack."""


class Rank(NamedTuple):
    """The place of an envelope in the stash: lowest `place` first within its `lane`, ties by arrival.

    Only the top of a lane is considered, so an envelope below it must not become acceptable before it. A handled envelope may
    make others acceptable in its own lane and in its `next_lane`, and none in another lane.
    """

    lane: str
    place: int


class Strategy(Protocol):
    """Decides whether an envelope is handled now. Pure: the same arguments give the same answer.

    A strategy by numbers may also have `skip(state, envelope)`, for an operator's order: it returns the state after the lowest
    number that the waiting envelope waits for was given up, or None if there is no such number.

    One whose answers are cheap together may also have `step(state, envelope)`: the answers of `handled` and `is_late` as a tuple
    if it `accepts` the envelope, else None. It is asked instead of these three for an envelope that is handled in order.

    One in which a handled envelope makes those of another lane acceptable has `next_lane(envelope)`: that lane, or None. A
    release then begins with the envelopes whose lane is the next one of nothing that is stashed.

    One that orders by a time may have `arrived(envelope, at)`: the event as it counts, for one that came at this instant. With
    `releases_by_wait` the end of an event's wait releases it in order, with all that are before it, and not the whole stash.
    It then needs one lane for all: what is before an event is found by the order of the stash, which goes by lanes first.

    `name` identifies the strategy's states; it includes the configured keys. With `needs_sequence` a record without a valid
    sequence is a dead letter. With `gathers` the data of all stashed envelopes are taken over on completion, in order of
    arrival, before any of them is handled. Without it an envelope's data is taken over when the envelope is handled.
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
        """Return the state of a new unit."""
        ...

    def rank(self, envelope: Event) -> Rank: ...

    def observe(self, state: Any, envelope: Event) -> Any:
        """Return the state after this envelope arrived. Called once for every arriving envelope, before `accepts`."""
        ...

    def accepts(self, state: Any, envelope: Event) -> bool:
        """Whether the envelope may be handled now."""
        ...

    def handled(self, state: Any, envelope: Event) -> Any:
        """Return the state after the envelope was handled in order."""
        ...

    def forced(self, state: Any, envelope: Event) -> Any:
        """Return the state after the envelope was handled out of order, at a deadline or bound. Skipped numbers are given up."""
        ...

    def dead_lettered(self, state: Any, envelope: Event) -> Any:
        """Return the state after the envelope became a dead letter; it may come again. Called after `handled` or `forced`."""
        ...

    def is_late(self, state: Any, envelope: Event) -> bool:
        """Whether a later envelope was handled before this one; dead letters were not.

        Called before `handled`, and with `next_lane` before `forced`, too.
        """
        ...

    def missing(self, state: Any, envelope: Event) -> str:
        """Return what this envelope waits for, as text for the header `incomplete`."""
        ...
