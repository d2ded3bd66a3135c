"""The ticks of a cron expression in a time zone. Pure.

Where the clocks change, a tick comes as in Debian's cron, whose rules (cron(8)) the library follows. With a fixed hour and minute
it comes once on each of its days: if the clocks leave its time out it comes when that hour is over, and if its time comes twice
it comes at the first. With a star in one of these fields it follows the time that has really passed.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from resequencer.clock import Instant

_FIELDS = 5
_RECENT_MS = 2 * 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Ticks:
    """The ticks of one schedule, each the beginning of a minute.

    Raises:
        ValueError: The expression or the time zone is not valid, or the expression has no tick in fifty years.
    """

    def __init__(self, cron: str, time_zone: str) -> None:
        self._cron = cron
        self._zone = _zone_of(time_zone)
        self.expression = f"{' '.join(cron.split())} ({time_zone})"
        if len(cron.split()) != _FIELDS:
            raise ValueError(f"it has {len(cron.split())} fields instead of {_FIELDS}")
        try:
            has_tick = self.next(0) is not None
        except CronSimError as error:
            raise ValueError(str(error).lower()) from error
        if not has_tick:
            raise ValueError("no day meets it")

    def next(self, after: Instant) -> Instant | None:
        """Return the first tick after this instant, None if there is none in fifty years."""
        return next(self._since(after), None)

    def last(self, after: Instant, until: Instant) -> Instant | None:
        """Return the last tick after `after` and not after `until`, None if there is none."""
        recent = max(after, until - _RECENT_MS)
        found = None
        # A schedule that ticked in the last days may tick often: what is older need not be counted through.
        for since in dict.fromkeys((recent, after)):
            for tick in self._since(since):
                if tick > until:
                    break
                found = tick
            if found is not None:
                break
        return found

    def _since(self, after: Instant) -> Iterator[Instant]:
        reached = after
        for moment in CronSim(self._cron, (_EPOCH + timedelta(milliseconds=after)).astimezone(self._zone)):
            tick = round(moment.timestamp()) * 1_000
            # In the hour that comes twice, the library begins anew with the first one.
            if tick > reached:
                reached = tick
                yield tick


def _zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {name}") from error
