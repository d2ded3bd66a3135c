"""The ticks of a schedule, its requests, and how far it has come. Pure.

Where the clocks change, a tick comes as in Debian's cron, whose rules (cron(8)) the library follows. With a fixed hour and minute
it comes once on each of its days: if the clocks leave its time out it comes when that hour is over, and if its time comes twice
it comes at the first. With a star in one of these fields it follows the time that has really passed.
"""

from base64 import b32encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
from cronsim import CronSim, CronSimError

from guardian.headers import DELIVERY_ID, LOOKUPS_VERSION, SCHEDULE, SCHEDULE_TICK
from notification_service.delivery.schedules.settings import Missed
from notification_service.lookups.shapes import SEPARATOR
from resequencer.clock import Instant, instant_text
from resequencer.record import Headers

_ID_CHARACTERS = 32


class Request(msgspec.Struct, frozen=True):
    """A request for one key at one tick. `id` is the same whenever it is made: it is the idempotency key."""

    id: str
    key: str
    value: bytes
    headers: Headers


def make_request(schedule: str, tick: Instant, key: bytes, release: str | None, payload: msgspec.Raw) -> Request:
    """Return the request. `key` may be a key of a lookup, with its parts; in the request they are joined by slashes."""
    identifier = _id_of(schedule, tick, key)
    text = key.decode(errors="replace").replace(SEPARATOR, "/")
    at = instant_text(tick)
    headers: Headers = ((DELIVERY_ID, identifier.encode()), (SCHEDULE, schedule.encode()), (SCHEDULE_TICK, at.encode()))
    if release is not None:
        headers = (*headers, (LOOKUPS_VERSION, release.encode()))
    value = msgspec.json.encode({"schedule": schedule, "tick": at, "key": text, "payload": payload})
    return Request(identifier, text, value, headers)


def _id_of(schedule: str, tick: Instant, key: bytes) -> str:
    name = b"\x00".join((schedule.encode(), str(tick).encode(), key))
    return b32encode(sha256(name).digest()).decode()[:_ID_CHARACTERS]


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
            # In the hour that comes twice, the library begins again with the first one.
            if tick > reached:
                reached = tick
                yield tick


def _zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {name}") from error


GRACE_MS = 60_000
"""A tick that no worker has begun for longer than this is a missed one."""

MAX_AHEAD = 8
"""So many runs of made ticks are kept, the last ones by their instants: what is stored with an offset is short."""

NOTED_MS = 86_400_000
"""Progress is written again when it is a day old: brokers delete the offset of a group that is not used for a week."""


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a schedule is, as it is stored with the requests.

    `tick` is the last tick that was begun, or the instant from which `expression` is in force. While the requests of a tick are
    made, `after` is the last key that was looked at, in hexadecimal, and `release` the version of the lookups that the keys are
    of; `after` None: all requests of the tick are made. `made` counts those of the tick, `total` those of all ticks.

    All ticks from `run_from` to `tick` were made; None: the last one was not. `ahead` are first and last ticks of earlier runs:
    those that were made while the clock was ahead, perhaps more than once, are not made again when their time comes.
    """

    tick: Instant
    expression: str
    noted_at: Instant
    after: str | None = None
    release: str | None = None
    made: int = 0
    total: int = 0
    run_from: Instant | None = None
    ahead: tuple[tuple[Instant, Instant], ...] = ()

    @property
    def is_done(self) -> bool:
        return self.after is None

    @property
    def last_key(self) -> bytes:
        """The last key that was looked at; empty before the first."""
        return bytes.fromhex(self.after or "")

    def was_made_ahead(self, tick: Instant) -> bool:
        """Return whether the tick was made while the clock was ahead."""
        return any(first <= tick <= last for first, last in self.ahead)

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    def went_on(self, last_key: bytes | None, made: int, now: Instant) -> "Progress":
        """Return the progress after `made` requests, the last key that was looked at, or None at the end of the tick."""
        return msgspec.structs.replace(
            self,
            after=None if last_key is None else last_key.hex(),
            made=self.made + made,
            total=self.total + made,
            noted_at=now,
        )


def decode_progress(text: str) -> Progress:
    """Return what `encode` has made.

    Raises:
        ValueError: The text is none of it.
    """
    try:
        return msgspec.json.decode(text, type=Progress)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def is_ahead(progress: Progress, now: Instant) -> bool:
    """Return whether the last tick was made while the clock was ahead, by more than clocks of two workers may differ."""
    return progress.is_done and progress.tick > now + GRACE_MS


def find_next(progress: Progress | None, ticks: Ticks, missed: Missed, now: Instant) -> Progress | None:
    """Return the progress to continue from; None if there is nothing to do. If it `is_ahead`, the clock must be trusted.

    A tick under way is ended first, also after a change of the expression, and however late. A new expression has no missed
    ticks: it is in force from now on. A schedule that is ahead continues from now. The result is done already if it only has to
    be stored.
    """
    if progress is None:
        return Progress(now, ticks.expression, now)
    if not progress.is_done:
        return progress
    if is_ahead(progress, now):
        return Progress(now, progress.expression, now, total=progress.total, ahead=_runs(progress))
    if progress.expression != ticks.expression:
        return Progress(max(progress.tick, now), ticks.expression, now, total=progress.total)
    tick = ticks.last(progress.tick, now)
    if tick is not None:
        return _at(tick, progress, ticks, missed, now)
    return msgspec.structs.replace(progress, noted_at=now) if abs(now - progress.noted_at) > NOTED_MS else None


def _at(tick: Instant, progress: Progress, ticks: Ticks, missed: Missed, now: Instant) -> Progress:
    """Return the progress at the next tick: to be made, or to be passed by."""
    is_skipped = missed is Missed.NONE and now - tick > GRACE_MS
    if is_skipped or progress.was_made_ahead(tick):
        return Progress(tick, ticks.expression, now, total=progress.total, ahead=_runs(progress))
    goes_on = progress.run_from is not None and ticks.next(progress.tick) == tick
    run_from, ahead = (progress.run_from, progress.ahead) if goes_on else (tick, _runs(progress))
    return Progress(tick, ticks.expression, now, after="", total=progress.total, run_from=run_from, ahead=ahead)


def _runs(progress: Progress) -> tuple[tuple[Instant, Instant], ...]:
    """Return the runs of made ticks with the last one. No clock shows which are past: the first ones are dropped."""
    last = () if progress.run_from is None else ((progress.run_from, progress.tick),)
    return tuple(sorted((*progress.ahead, *last))[-MAX_AHEAD:])


def overdue_since(progress: Progress | None, ticks: Ticks, now: Instant) -> Instant | None:
    """Return the tick whose requests are not all made although it is due; None if there is none."""
    if progress is None:
        return None
    if not progress.is_done:
        return progress.tick
    tick = ticks.last(progress.tick, now) if progress.expression == ticks.expression else None
    return None if tick is None or progress.was_made_ahead(tick) else tick
