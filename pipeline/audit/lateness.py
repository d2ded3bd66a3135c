"""By how much envelopes come behind later ones of their unit."""

from bisect import bisect_right
from typing import NamedTuple

from domain.clock import Instant
from domain.envelope import DataEnvelope
from resequencer.strategies.port import Strategy


class Late(NamedTuple):
    """`depth` in numbers, `behind` in records of the lane since the first later one; 0 where it came in its turn.

    `ms` is the time since then, None where it came in its turn or nobody knows when records were written.
    """

    depth: int = 0
    behind: int = 0
    ms: int | None = None


class _Lane:
    """The records that had a higher number than all before them: numbers, places among the records, and instants."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: list[int] = []
        self.instants: list[Instant | None] = []
        self.count = 0


class Lateness:
    """Of one unit; ask in order of arrival. Numbers are compared where the strategy does, otherwise within a flow."""

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._lanes: dict[str, _Lane] = {}

    def of(self, envelope: DataEnvelope, at: Instant | None) -> Late:
        number = envelope.sequence
        if number is None:
            return Late()
        name = self._strategy.rank(envelope).lane if self._strategy.needs_sequence else envelope.flow
        lane = self._lanes.setdefault(name, _Lane())
        lane.count += 1
        first_later = bisect_right(lane.numbers, number)
        if first_later < len(lane.numbers):
            since = lane.instants[first_later]
            ms = None if since is None or at is None else max(0, at - since)
            return Late(lane.numbers[-1] - number, lane.count - 1 - lane.places[first_later], ms)
        if not lane.numbers or lane.numbers[-1] < number:
            lane.numbers.append(number)
            lane.places.append(lane.count - 1)
            lane.instants.append(at)
        return Late()
