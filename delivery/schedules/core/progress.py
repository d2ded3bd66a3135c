"""How far a schedule is, and what comes next. Pure."""

import msgspec

from delivery.schedules.core.ticks import Ticks
from delivery.schedules.settings import Missed
from domain.clock import Instant

GRACE_MS = 60_000
"""A tick that no worker has begun for longer than this is a missed one."""

NOTED_MS = 86_400_000
"""Progress is written anew when it is a day old: brokers delete the offset of a group that is not used for a week."""


class Progress(msgspec.Struct, frozen=True):
    """How far a schedule is, as it is stored with the requests.

    `tick` is the last tick that was begun, or the instant from which `expression` is in force. While the requests of a tick are
    made, `after` is the last key that was looked at, in hexadecimal, and `release` the version of the lookups that the keys are
    of; `after` None: all requests of the tick are made. `made` counts those of the tick, `total` those of all ticks.
    """

    tick: Instant
    expression: str
    noted_at: Instant
    after: str | None = None
    release: str | None = None
    made: int = 0
    total: int = 0

    @property
    def is_done(self) -> bool:
        return self.after is None

    @property
    def last_key(self) -> bytes:
        """The last key that was looked at; empty before the first."""
        return bytes.fromhex(self.after or "")

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


def find_next(progress: Progress | None, ticks: Ticks, missed: Missed, now: Instant) -> Progress | None:
    """Return the progress to go on from; None if there is nothing to do.

    A tick under way is ended first, also after a change of the expression, and however late. A new expression has no missed
    ticks: it is in force from now on. The result is done already if it only has to be stored.
    """
    if progress is None:
        return Progress(now, ticks.expression, now)
    if not progress.is_done:
        return progress
    if progress.expression != ticks.expression:
        return Progress(max(progress.tick, now), ticks.expression, now, total=progress.total)
    tick = ticks.last(progress.tick, now)
    if tick is None:
        return msgspec.structs.replace(progress, noted_at=now) if now - progress.noted_at > NOTED_MS else None
    is_left_out = missed is Missed.NONE and now - tick > GRACE_MS
    return Progress(tick, ticks.expression, now, after=None if is_left_out else "", total=progress.total)


def overdue_since(progress: Progress | None, ticks: Ticks, now: Instant) -> Instant | None:
    """Return the tick whose requests are not all made although it is due; None if there is none."""
    if progress is None:
        return None
    if not progress.is_done:
        return progress.tick
    is_in_force = progress.expression == ticks.expression
    return ticks.last(progress.tick, now) if is_in_force else None
