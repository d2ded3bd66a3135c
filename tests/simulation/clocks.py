"""Clocks that are wrong, each in its own way."""

from random import Random

from service_under_test import FakeClock

from domain.clock import Instant

MOST_MS = 600_000
"""How far a clock is off at most. What is kept for the retention outlives two that are off in opposite directions."""

_JUMPS_MS = (0, 500, 5_000, 25_000, MOST_MS)


class MachineClock:
    """That of the machine that a worker runs on: it is `ahead_ms` of the world's, or behind it."""

    def __init__(self, world: FakeClock) -> None:
        self._world = world
        self.ahead_ms = 0

    def now(self) -> Instant:
        return self._world.now() + self.ahead_ms

    def jump(self, random: Random) -> None:
        """Somebody sets it."""
        self.ahead_ms = random.choice((-1, 1)) * random.choice(_JUMPS_MS)
