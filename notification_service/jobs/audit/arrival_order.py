"""Measures by how much envelopes were overtaken: a later envelope of their unit arrived before them."""

from bisect import bisect_right
from typing import NamedTuple

from resequencer.clock import Instant
from resequencer.envelope import DataEnvelope
from resequencer.strategies.port import Strategy


class Overtaken(NamedTuple):
    """By how much an envelope was overtaken. All fields are 0 or None if it was not.

    `depth` counts numbers. `behind` counts the lane's records since the first one with a higher number. `ms` is the time since
    then; None also if it is unknown when records were written.
    """

    depth: int = 0
    behind: int = 0
    ms: int | None = None


class _Lane:
    """The records whose number was higher than all before: their numbers, places among the lane's records, and instants."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: list[int] = []
        self.instants: list[Instant | None] = []
        self.count = 0


class ArrivalOrder:
    """The order in which one unit's envelopes arrive; call `of` for each, in that order.

    Numbers are compared within a lane of the strategy; if the strategy needs no numbers, within a flow.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._lanes: dict[str, _Lane] = {}

    def of(self, envelope: DataEnvelope, at: Instant | None) -> Overtaken:
        number = envelope.sequence
        if number is None:
            return Overtaken()
        name = self._strategy.rank(envelope).lane if self._strategy.needs_sequence else envelope.flow
        lane = self._lanes.setdefault(name, _Lane())
        lane.count += 1
        first_later = bisect_right(lane.numbers, number)
        if first_later < len(lane.numbers):
            since = lane.instants[first_later]
            ms = None if since is None or at is None else max(0, at - since)
            return Overtaken(lane.numbers[-1] - number, lane.count - 1 - lane.places[first_later], ms)
        if not lane.numbers or lane.numbers[-1] < number:
            lane.numbers.append(number)
            lane.places.append(lane.count - 1)
            lane.instants.append(at)
        return Overtaken()
