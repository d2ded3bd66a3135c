"""Clocks that are wrong, each in its own way, and time that goes by while workers work."""

from random import Random

import msgspec
from harness.crashes.remembered import Remembered
from harness.service_under_test import FakeClock

from domain.clock import Instant

MOST_MS = 600_000
"""How far a clock is off at most."""

_JUMPS_MS = (0, 500, 5_000, 25_000, MOST_MS)
_WHILE_WORKING_MS = (500, 3_000, 9_000)


class ClockDangers(msgspec.Struct, frozen=True):
    """How likely it is, between two stretches of work, that a clock is set, and that time goes by."""

    jump: float = 0.0
    passing: float = 0.0

    @property
    def slack_ms(self) -> int:
        """How much sooner than it came a record may have been read by the caught-up clock, or later: two steps of it."""
        return 20_000 if self.jump else 0


NO_CLOCK_DANGERS = ClockDangers()


class WorldClock(FakeClock):
    """The right one. What has to be remembered depends on what goes by."""

    def __init__(self, remembered: Remembered) -> None:
        super().__init__()
        self._remembered = remembered

    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        self._remembered.passed(milliseconds)

    def pass_by(self, random: Random) -> None:
        """While workers work."""
        self.advance(random.choice(_WHILE_WORKING_MS))


class MachineClock:
    """That of the machine that a worker runs on: it is `ahead_ms` of the world's, or behind it."""

    def __init__(self, world: FakeClock, remembered: Remembered) -> None:
        self._world = world
        self._remembered = remembered
        self.ahead_ms = 0

    def now(self) -> Instant:
        return self._world.now() + self.ahead_ms

    def jump(self, random: Random) -> None:
        """Somebody sets it."""
        self.set(random.choice((-1, 1)) * random.choice(_JUMPS_MS))

    def set(self, ahead_ms: int) -> None:
        self._remembered.passed(max(0, ahead_ms - self.ahead_ms))
        self.ahead_ms = ahead_ms
