"""Follows how the envelopes of one simulated unit arrive, until nothing more of it can come."""

import msgspec

from simulator.disorder import Fate
from simulator.expectation import ExpectedUnit
from simulator.units import SimulatedUnit


class UnitArrivals:
    """Indices are places in the unit's true order, from 0. Late copies arrive after all others, whenever they came up."""

    def __init__(self, simulated: SimulatedUnit) -> None:
        self.simulated = simulated
        self._outstanding = len(simulated.envelopes)
        self._seen: dict[int, int] = {}
        self._written: list[int] = []
        self._late: list[int] = []

    @property
    def is_complete(self) -> bool:
        """All copies of all envelopes have come up."""
        return self._outstanding == 0

    def came(self, index: int, fate: Fate, *, copies: int) -> None:
        """One of `copies` copies of an envelope came up."""
        seen = self._seen[index] = self._seen.get(index, 0) + 1
        if seen == copies:
            self._outstanding -= 1
        if fate is Fate.WRITTEN and index not in self._written:
            self._written.append(index)
        elif fate is Fate.LATE and index not in self._late:
            self._late.append(index)

    def order(self) -> list[int]:
        """The envelopes that arrive at all, as they first do."""
        return self._written + [index for index in self._late if index not in self._written]

    def count_out_of_order(self) -> int:
        """Envelopes that first arrive after a later one of the unit."""
        highest, count = -1, 0
        for index in self.order():
            count += index < highest
            highest = max(highest, index)
        return count

    def expectation(self, partition: int) -> ExpectedUnit:
        """What is expected of the unit; asked when it is complete."""
        assert self.is_complete
        arrived = {index: place for place, index in enumerate(self.order(), start=1)}
        envelopes = tuple(
            msgspec.structs.replace(
                envelope.expected,
                arrived=arrived.get(index),
                late=index in arrived and index not in self._written,
                duplicates=self._seen[index] - 1,
            )
            for index, envelope in enumerate(self.simulated.envelopes)
        )
        return msgspec.structs.replace(self.simulated.expected, partition=partition, envelopes=envelopes)
