"""Clocks that are wrong, each in its own way, and time that passes while workers work."""

from random import Random

import msgspec
from harness.crashes.remembered import Remembered
from harness.service_under_test import FakeClock

from resequencer.clock import Instant

MAX_MS = 600_000
"""The most by which a clock is wrong."""

_JUMPS_MS = (0, 500, 5_000, 25_000, MAX_MS)
_WHILE_WORKING_MS = (500, 3_000, 9_000)


class ClockDangers(msgspec.Struct, frozen=True):
    """The probabilities that a clock is set (`jump`) and that time passes (`passing`) between two stretches of work."""

    jump: float = 0.0
    passing: float = 0.0

    @property
    def slack_ms(self) -> int:
        """How much earlier or later than it came a record may have been read, by the caught-up clock: two of its steps."""
        return 20_000 if self.jump else 0


NO_CLOCK_DANGERS = ClockDangers()


class WorldClock(FakeClock):
    """The right clock. It reports the time that passes, because what must be remembered depends on it."""

    def __init__(self, remembered: Remembered) -> None:
        super().__init__()
        self._remembered = remembered

    def advance(self, milliseconds: int) -> None:
        super().advance(milliseconds)
        self._remembered.passed(milliseconds)

    def pass_by(self, random: Random) -> None:
        """Let some time pass while workers work."""
        self.advance(random.choice(_WHILE_WORKING_MS))


class MachineClock:
    """The clock of a worker's machine. It is `ahead_ms` ahead of the world's clock, or behind it if negative."""

    def __init__(self, world: FakeClock, remembered: Remembered) -> None:
        self._world = world
        self._remembered = remembered
        self.ahead_ms = 0

    def now(self) -> Instant:
        return self._world.now() + self.ahead_ms

    def jump(self, random: Random) -> None:
        """Set the clock to a random difference from the world's clock."""
        self.set(random.choice((-1, 1)) * random.choice(_JUMPS_MS))

    def set(self, ahead_ms: int) -> None:
        self._remembered.passed(max(0, ahead_ms - self.ahead_ms))
        self.ahead_ms = ahead_ms
