"""A person who gives orders to a service under test."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from harness.service_under_test import DEADLINE_MS, Service

from resequencer.order import Order, OrderKind


class Operator:
    """Gives orders of these kinds in turn for some units that wait, at each moment of the service's life."""

    def __init__(self, kinds: Sequence[OrderKind], directory: Path) -> None:
        self._kinds = cycle(kinds)
        self._directory = directory
        self._given = 0

    def __call__(self, service: Service) -> None:
        service.run(cycles=3)
        for key, seen in service.report_units().oldest[:4]:
            kind = next(self._kinds)
            for position in self._positions(kind, key.partition.number, key.unit):
                order = Order(
                    id=f"o{self._given}",
                    kind=kind,
                    by="ann",
                    because="the customer asked",
                    at=service.clock.now(),
                    unit=key.unit,
                    waits_for=seen.waits_for,
                    since=seen.since,
                    despite_backlog=self._given % 2 == 0,
                    for_ms=1_000,
                    until=service.clock.now() + 2 * DEADLINE_MS,
                    position=position,
                )
                service.book.append(key.partition, order)
                self._given += 1

    def _positions(self, kind: OrderKind, partition: int, unit: str) -> list[int]:
        """Return 0, or for dead letters the offset of each record of the unit: those that wait are among them."""
        if kind is not OrderKind.DEAD_LETTER:
            return [0]
        found, at = [], 0
        for line in (self._directory / "in" / f"partition-{partition}.jsonl").read_bytes().splitlines(keepends=True):
            if f'"{unit}"'.encode() in line:
                found.append(at)
            at += len(line)
        return found
