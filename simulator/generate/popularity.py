"""How often a payment comes up where a few of them come up far more often than the rest."""

import math
from functools import lru_cache
from random import Random

from simulator.generate.plan import Plan

BUSIEST = 512
"""Envelopes of the busiest payment; a unit stashes up to 1 000, and remembers 1 024."""

_AMONG = 1_000
"""Payments that are ranked with each other, so that a million of them have a thousand that are the busiest of theirs."""


def envelopes_of(plan: Plan, number: int) -> int:
    """Envelopes that payment `number` (from 0) has at least: `BUSIEST / k^exponent` for the k-th busiest of its thousand.

    That is Zipf's law down to the 4 … 12 envelopes that every payment has.
    """
    block, place = divmod(number, _AMONG)
    rank = _ranks(plan.seed, block, min(_AMONG, plan.units - block * _AMONG))[place]
    return round(BUSIEST / math.pow(float(rank), plan.exponent))


@lru_cache(2)
def _ranks(seed: int, block: int, count: int) -> tuple[int, ...]:
    """1 … count in a random order."""
    ranks = list(range(1, count + 1))
    Random(f"{seed}/ranks/{block}").shuffle(ranks)  # noqa: S311  # A simulation, and it must repeat itself.
    return tuple(ranks)
