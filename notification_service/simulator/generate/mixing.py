"""Mixes the envelopes of all units into one stream; each unit's envelopes keep their true order."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from notification_service.simulator.generate.pain001 import SinglePayment
from notification_service.simulator.generate.plan import Keys, Plan
from notification_service.simulator.generate.unit_arrivals import UnitArrivals
from notification_service.simulator.generate.units import simulate_unit

UNITS_AT_ONCE = 50
"""How many payments are active at any time; their envelopes are mixed."""


class Place(NamedTuple):
    """One envelope of an active unit."""

    unit: UnitArrivals
    at: int


def mixed(plan: Plan, payments: Sequence[SinglePayment], rng: Random) -> Iterator[Place]:
    """Yield envelopes as if `UNITS_AT_ONCE` payments ran in parallel.

    Each active payment is equally likely to come next. With `Keys.ZIPF` the weight is the payment's number of envelopes: one with
    500 comes fifty times as often as one with 10.
    """
    active: list[Iterator[Place]] = []
    weights: list[int] = []
    started = 0
    while active or started < plan.units:
        while len(active) < UNITS_AT_ONCE and started < plan.units:
            unit = UnitArrivals(simulate_unit(plan, payments, started), is_backlog=plan.is_backlog)
            active.append(_places(unit))
            weights.append(len(unit.simulated.envelopes))
            started += 1
        chosen = rng.randrange(len(active)) if plan.keys is Keys.UNIFORM else rng.choices(range(len(active)), weights)[0]
        place = next(active[chosen], None)
        if place is not None:
            yield place
        else:
            active[chosen], weights[chosen] = active[-1], weights[-1]
            active.pop()
            weights.pop()


def _places(unit: UnitArrivals) -> Iterator[Place]:
    return (Place(unit, at) for at in range(len(unit.simulated.envelopes)))
