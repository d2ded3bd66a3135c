"""Whether the requests of a simulated schedule are those that docs/delivery.md promises."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from harness.simulated_schedules.timetable import MINUTE_MS, Timetable
from harness.wild_clock import TRUSTED_MS

from notification_service.delivery.schedules.settings import Missed
from resequencer.clock import instant_of, instant_text

RECOVERS_MS = 75_000
"""After a fault, and at the first tick behind it, a tick may wait: for the lease of thirty seconds of a worker that died with its
right, which is looked at when a tick is due, and some times for the ten seconds that a worker stands back."""

SETTLES_MS = TRUSTED_MS + RECOVERS_MS
"""After a clock that misled a schedule may be ahead, and waits until the clock is trusted."""

_SOON_MS = 6_000


class Moment(NamedTuple):
    """The right time at which a worker wanted to make requests, and whether the clock misled it."""

    at: int
    is_misled: bool


class _Body(msgspec.Struct):
    tick: str
    key: str


class Judge:
    """Sees each request as it is stored. `problem` is the first promise that was broken.

    `misled_until` is when the clock last misled a worker, by the right time; 0: never.
    """

    def __init__(self, table: Timetable, keys: Sequence[str], missed: Missed) -> None:
        self._table, self._keys, self._missed = table, keys, missed
        self.problem: str | None = None
        self.misled_until = self._clock_set_at = 0
        self._was_trusted = False
        self.requests = self.ahead = 0
        self._made: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._last = 0

    def blame(self, problem: str) -> None:
        self.problem = self.problem or problem

    def clock_is_set(self, now: int) -> None:
        """Note that the clock is set. A schedule may have gone back before, if the clock was trusted since its last tick."""
        self._was_trusted = self._was_trusted or now - self._clock_set_at >= TRUSTED_MS
        self._clock_set_at = now

    def take(self, values: Sequence[bytes], moment: Moment, now: int) -> None:
        """Look at requests that were stored now."""
        for each in values:
            body = msgspec.json.decode(each, type=_Body)
            tick = instant_of(body.tick)
            made = self._made.get(tick, 0)
            if body.key != (self._keys[made] if made < len(self._keys) else None):
                self.blame(f"tick {body.tick} has {made} requests, and then one for {body.key}")
            if tick != self._last:
                self._begun(tick, moment)
            self._made[tick], self._last = made + 1, tick
            self.requests += 1
            if made + 1 == len(self._keys):
                self._ended[tick] = now

    def _begun(self, tick: int, moment: Moment) -> None:
        text, at = instant_text(tick), instant_text(moment.at)
        if self._last and self._last not in self._ended:
            self.blame(f"tick {instant_text(self._last)} was begun, and before its end {text} is begun")
        if not self._table.is_tick(tick) or tick <= self._table.begin_ms:
            self.blame(f"there is no tick {text}")
        if tick < self._last and not self._was_trusted and moment.at - self._clock_set_at < TRUSTED_MS:
            self.blame(f"tick {text} follows {instant_text(self._last)} at {at}, before the clock is trusted")
        self._was_trusted = False
        self.ahead += tick > moment.at
        if moment.is_misled:
            return
        if tick != (last := self._table.last(moment.at)):
            self.blame(f"tick {text} is begun at {at}, when the last one is {instant_text(last)}")
        if self._missed is Missed.NONE and moment.at - tick > MINUTE_MS:
            self.blame(f"tick {text} is begun at {at}, although no missed one is wanted")

    def says_in_future(self, moment: Moment) -> None:
        """Look at a worker that says that the last tick is in the future. One that was left out cannot be seen."""
        if not moment.is_misled and self._missed is Missed.ONCE and self._last <= moment.at + MINUTE_MS:
            self.blame(f"at {instant_text(moment.at)} tick {instant_text(self._last)} is reported as in the future")

    def check_calm(self, since: int, until: int) -> None:
        """Look back on a time without faults, except that the clock may have been set."""
        was_misled = self.misled_until > 0
        settled = max(since + RECOVERS_MS, self.misled_until + SETTLES_MS if was_misled else 0)
        for number, tick in enumerate(self._table.ticks(settled, until)):
            due = tick if number else tick + RECOVERS_MS
            if due + _SOON_MS <= until:
                self._check_made(tick, due)
        last = self._table.last(settled)
        if not was_misled and self._missed is Missed.ONCE and last > self._table.begin_ms:
            # A tick within the time of recovery may be the first one behind a fault.
            self._check_made(last, max(settled, last + RECOVERS_MS) if last > since else settled)

    def _check_made(self, tick: int, due: int) -> None:
        ended = self._ended.get(tick)
        if ended is None or ended > due + _SOON_MS:
            how = "is not made" if ended is None else f"is made at {instant_text(ended)}"
            self.blame(f"tick {instant_text(tick)} {how}, although nothing was wrong")
