"""The wall clock of a simulation: in some runs it is set ahead and back, each time for some seconds."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from resequencer.clock import Belief, SteadyClock

TRUSTED_MS = 120_000
_DAY_MS = 86_400_000
_JUMPS_MS = (300_000, _DAY_MS, 365 * _DAY_MS)
_MAX_MS = 15_000
_WILD, _SET, _BEGUN_ANEW = 0.3, 0.05, 0.15


class WildClock:
    """`now` is the right time. `of_process` is what a process goes by, which knows what earlier ones of its name have kept.

    Its draws are its own, so that a run in which nothing is set is the same with and without it. While it `misleads`, the wall
    clock is wrong since the machine has begun anew, or was set before it had agreed for long enough since then. Processes cannot
    know that: pauses may be too short. Nothing else may be wrong.
    """

    def __init__(
        self,
        random: Random,
        begin_ms: int,
        *,
        may_be_wild: bool = True,
        jumps_ms: Sequence[int] = _JUMPS_MS,
        begun_anew: float = _BEGUN_ANEW,
    ) -> None:
        self._random, self._jumps_ms, self._begun_anew = random, jumps_ms, begun_anew
        self.is_wild = may_be_wild and random.random() < _WILD
        self._passed_ms, self._ahead_ms, self._until = begin_ms, 0, 0
        self._boot = 0
        self._known = Belief("0", 0, begin_ms, begin_ms - TRUSTED_MS, is_settled=True, floor=begin_ms)
        self._kept: dict[str, Belief] = {}
        self.misleads = False

    def now(self) -> int:
        return self._passed_ms

    @property
    def is_wrong(self) -> bool:
        return self._ahead_ms != 0

    def of_process(self, name: str = "") -> SteadyClock:
        known, keep = self._kept.get(name, self._known), partial(self._kept.__setitem__, name)
        wall = lambda: self._passed_ms + self._ahead_ms  # noqa: E731
        return SteadyClock(wall, self.now, str(self._boot), trusted_ms=TRUSTED_MS, known=known, keep=keep)

    def pass_time(self, milliseconds: int) -> None:
        self._passed_ms += milliseconds
        if self._passed_ms >= self._until:
            self.calm_down()

    def calm_down(self) -> None:
        self._ahead_ms, self.misleads = 0, False

    def change(self, begin_anew: Callable[[], None] | None = None) -> str:
        """Set the clock now and then; return what happened. `begin_anew` ends all processes, as a start of the machine does."""
        if not self.is_wild or self._ahead_ms or self._random.random() >= _SET:
            return ""
        self._ahead_ms = self._random.choice(self._jumps_ms) * self._random.choice((1, 1, -1))
        self._until = self._passed_ms + self._random.randint(200, _MAX_MS)
        text = f"the clock is set {self._ahead_ms} ms ahead until {self._until}"
        begins_anew = begin_anew is not None and self._random.random() < self._begun_anew
        self._boot += begins_anew
        self.misleads = self._boot > 0
        if begin_anew is None or not begins_anew:
            return text
        begin_anew()
        return f"{text}, and the machine begins anew"
