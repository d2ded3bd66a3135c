"""Tracks the arrivals of one simulated unit's envelopes until all copies have come up."""

from collections import Counter
from typing import Any

import msgspec

from notification_service.simulator.expectation import ExpectedUnit
from notification_service.simulator.generate.contradiction import contradict
from notification_service.simulator.generate.disorder import Disordered, Fate
from notification_service.simulator.generate.units import SimulatedEnvelope, SimulatedUnit


class UnitArrivals:
    """Indices are places in the unit's true order, from 0. Late copies arrive after all others, whenever they came up.

    With `is_backlog` no time passes before late copies, so they are last but not late.
    """

    def __init__(self, simulated: SimulatedUnit, *, is_backlog: bool = False) -> None:
        self.simulated = simulated
        self._is_backlog = is_backlog
        self._outstanding = len(simulated.envelopes)
        self._seen: Counter[int] = Counter()
        self._refused: Counter[int] = Counter()
        self._does_first_contradict: dict[int, bool] = {}
        self._written: dict[int, None] = {}
        self._late: dict[int, None] = {}
        self._first_ms: int | None = None
        self._last_ms = 0

    @property
    def is_complete(self) -> bool:
        """Whether all copies of all envelopes have come up."""
        return self._outstanding == 0

    def came(self, index: int, copy: Disordered[Any], due_ms: int) -> bool:
        """Note that a copy came up; return whether it must be refused, because the first of its id had other content."""
        self._seen[index] += 1
        self._outstanding -= self._seen[index] == copy.copies
        if copy.fate is Fate.LATE:
            self._late[index] = None
        elif copy.fate is Fate.WRITTEN:
            self._written[index] = None
            self._last_ms = due_ms
            self._first_ms = due_ms if self._first_ms is None else self._first_ms
        is_refused = self._does_first_contradict.setdefault(index, copy.contradicts) is not copy.contradicts
        self._refused[index] += is_refused
        return is_refused

    def envelope(self, index: int, *, contradicts: bool) -> SimulatedEnvelope:
        """Return the envelope as it happened, or with other content under its id."""
        envelope = self.simulated.envelopes[index]
        return contradict(self.simulated.expected.unit, envelope) if contradicts else envelope

    def order(self) -> list[int]:
        """Return the envelopes that arrive at all, in the order of first arrival."""
        return [*(self._written | self._late)]

    def count_out_of_order(self) -> int:
        """Count the envelopes that first arrive after a later one of the unit."""
        highest, count = -1, 0
        for index in self.order():
            count += index < highest
            highest = max(highest, index)
        return count

    def expectation(self, partition: int) -> ExpectedUnit:
        """Return the expectation of the unit, once it is complete."""
        assert self.is_complete
        arrived = {index: place for place, index in enumerate(self.order(), start=1)}
        envelopes = tuple(
            msgspec.structs.replace(
                self.envelope(index, contradicts=self._does_first_contradict[index]).expected,
                arrived=arrived.get(index),
                late=index in arrived and index not in self._written and not self._is_backlog,
                duplicates=self._seen[index] - 1 - self._refused[index],
                conflicts=self._refused[index],
            )
            for index in range(len(self.simulated.envelopes))
        )
        lasts_ms = self._last_ms - (self._first_ms or 0)
        return msgspec.structs.replace(self.simulated.expected, partition=partition, envelopes=envelopes, lasts_ms=lasts_ms)
