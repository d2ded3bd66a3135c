"""How many envelopes a payment has if a few payments are far busier than the rest."""

import math
from functools import lru_cache
from random import Random

from notification_service.simulator.generate.plan import Plan

BUSIEST = 512
"""Envelopes of the busiest payment; a unit stashes up to 1 000 and remembers 1 024."""

_AMONG = 1_000
"""Payments are ranked in groups of this size, so a million payments have a thousand busiest ones."""


def envelopes_of(plan: Plan, number: int) -> int:
    """Return the least number of envelopes of payment `number` (from 0): `BUSIEST / k^exponent` for the k-th of its group.

    This is Zipf's law, bounded below by the 4 … 12 envelopes that every payment has.
    """
    block, place = divmod(number, _AMONG)
    rank = _ranks(plan.seed, block, min(_AMONG, plan.units - block * _AMONG))[place]
    return round(BUSIEST / math.pow(float(rank), plan.exponent))


@lru_cache(2)
def _ranks(seed: int, block: int, count: int) -> tuple[int, ...]:
    """Return 1 … count in a random order."""
    ranks = list(range(1, count + 1))
    Random(f"{seed}/ranks/{block}").shuffle(ranks)  # noqa: S311  # A simulation, and it must repeat itself.
    return tuple(ranks)
