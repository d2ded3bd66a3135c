"""When a schedule must tick, found minute by minute from what docs/delivery.md says: nothing of the service's code decides it."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BEGINS = {
    "UTC": ("2026-06-10T12:00Z",),
    "Asia/Kolkata": ("2026-06-12T12:00Z",),
    "Europe/Berlin": ("2026-03-28T12:00Z", "2026-10-24T12:00Z"),
    "America/New_York": ("2026-03-07T12:00Z", "2026-10-31T12:00Z"),
}
"""Zones, and where their simulations begin: those of the last two come to a change of the clocks."""


class Timetable(NamedTuple):
    """A schedule ticks at `fixed`, on week-days only or on each day; or, without it, each `every` minutes from `minute` on."""

    zone: str
    begin_ms: int
    every: int = 60
    minute: int = 0
    fixed: time | None = None
    only_week_days: bool = False

    @classmethod
    def drawn(cls, random: Random) -> "Timetable":
        zone = random.choice(list(_BEGINS))
        begin_ms = round(datetime.fromisoformat(random.choice(_BEGINS[zone])).timestamp()) * 1_000
        every = random.choice((1, 1, 5, 20, 60, None))
        if every is None:
            return cls(zone, begin_ms, fixed=random.choice((time(2, 30), time(18))), only_week_days=random.random() < 0.5)
        return cls(zone, begin_ms, every, random.choice((0, 30)) if every == 60 else 0)

    @property
    def cron(self) -> str:
        if self.fixed is not None:
            return f"{self.fixed.minute} {self.fixed.hour} * * {'MON-FRI' if self.only_week_days else '*'}"
        return f"{self.minute} * * * *" if self.every == 60 else f"*/{self.every} * * * *"

    def is_tick(self, at: int) -> bool:
        if at % MINUTE_MS:
            return False
        local = self._local(at)
        if self.fixed is None:
            return local.minute % self.every == self.minute
        if local.hour - self.fixed.hour not in (0, 1):
            return False
        # The first minute of the day that shows the time or a later one: clocks may leave it out, or show it twice.
        wanted = datetime.combine(local.date(), self.fixed)
        is_first = self._local(at - MINUTE_MS) < wanted <= local and self._local(at - _HOUR_MS) < wanted
        return is_first and (not self.only_week_days or local.weekday() < 5)

    def ticks(self, after: int, until: int) -> list[int]:
        """Return the ticks after `after` and not after `until`."""
        return [each for each in range(after - after % MINUTE_MS + MINUTE_MS, until + 1, MINUTE_MS) if self.is_tick(each)]

    def last(self, until: int) -> int:
        """Return the last tick that is not after `until`."""
        return next(each for each in range(until - until % MINUTE_MS, 0, -MINUTE_MS) if self.is_tick(each))

    def coming(self, after: int) -> Iterator[int]:
        while True:
            after += MINUTE_MS - after % MINUTE_MS
            if self.is_tick(after):
                yield after

    def _local(self, at: int) -> datetime:
        return (_EPOCH + timedelta(milliseconds=at)).astimezone(ZoneInfo(self.zone)).replace(tzinfo=None)
