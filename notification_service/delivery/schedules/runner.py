"""Runs a schedule: looks whether a tick is due, and makes its requests in portions, each stored with the progress behind it."""

import logging
from collections.abc import Callable
from threading import Lock

import msgspec

from notification_service.delivery.schedules.core import (
    GRACE_MS,
    Progress,
    Request,
    Ticks,
    find_next,
    is_ahead,
    make_request,
    overdue_since,
)
from notification_service.delivery.schedules.keys import Keys
from notification_service.delivery.schedules.settings import Schedule
from notification_service.delivery.schedules.sink import RequestSink, ScheduleBusy
from resequencer.clock import Instant, SteadyClock, instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import counted

_LOG = logging.getLogger("resequencer.delivery")
_YIELD_MS = 10_000
"""The worker that has begun a tick makes it, as long as its progress moves within this time."""

_COUNT_MS = 10_000
"""How often it is asked how many requests wait for the receiver."""

_PILE_TICKS = 2
"""When as many requests wait as more than these ticks make, the schedule is ahead of its receiver: that is a problem."""

_REQUESTS, _BYTES, _LOOKED_AT = 500, 1 << 20, 50_000
"""How many requests a portion has at most, about how many bytes, and how many keys are looked at for it."""


class OtherExpression(ResequencerError):
    """Another worker, which was started later, has another configuration of the schedule."""

    def __init__(self, schedule: str, progress: Progress | None) -> None:
        other = progress.expression if progress is not None else ""
        super().__init__(
            f"schedule {schedule}: a worker that was started later runs it as {other}; give all workers one configuration, and "
            "restart those that have the old one"
        )


class TickInFuture(ResequencerError):
    """The clock was ahead when the last tick was made, and it is not known yet whether it is right now."""

    def __init__(self, schedule: str, tick: Instant) -> None:
        super().__init__(
            f"schedule {schedule}: its last tick is {instant_text(tick)}, in the future: the clock was ahead then, or is behind "
            "now. It continues from now when the clock has been right for as long as clock.trusted-after says; set the clock if "
            "it is wrong"
        )


class ScheduleReport(msgspec.Struct, frozen=True):
    """How far a schedule is, as one worker saw it last. `tick` is the last one that was begun, None before the first.

    `made` counts its requests so far, and `total` those of all ticks. `overdue_since` is the tick that is due and not done.
    `waiting` requests wait for the receiver, as many as `ticks_waiting` ticks make; None: it is not known.
    """

    name: str
    expression: str
    tick: Instant | None
    made: int
    total: int
    next_tick: Instant | None
    overdue_since: Instant | None
    problem: str | None
    waiting: int | None = None
    ticks_waiting: float | None = None


class ScheduleRunner:
    """One worker's view of a schedule. `look` and `close` may be called from any thread."""

    def __init__(
        self,
        name: str,
        settings: Schedule,
        keys: Keys,
        sink: RequestSink,
        clock: SteadyClock,
    ) -> None:
        self.name = name
        self._ticks = Ticks(settings.cron, settings.time_zone)
        self._missed = settings.missed
        self._payload = msgspec.Raw(settings.payload.encode())
        self._lock = Lock()
        self._keys, self._sink, self._clock = keys, sink, clock
        self._progress: Progress | None = None
        self._yields_until = 0
        self._was_in_force = False
        self._made = 0
        self._receiver = settings.receiver
        self._waiting: int | None = None
        self._per_tick = 0
        self._counted_at = -_COUNT_MS
        self.problem: str | None = None

    def look(self, is_stopping: Callable[[], bool]) -> bool:
        """Make what is due, until all is made or `is_stopping`; return whether there are new requests.

        Without a due tick nothing is asked.

        Raises:
            ResequencerError: The sink or the lookups cannot be used now. The next call continues.
        """
        with self._lock:
            before = self._made
            self._look(is_stopping)
            if self._made > before or self._clock.passed() - self._counted_at >= _COUNT_MS:
                self._waiting, self._counted_at = self._sink.count_waiting(), self._clock.passed()
            return self._made > before

    def _look(self, is_stopping: Callable[[], bool]) -> None:
        progress = self._progress
        is_known = progress is not None and not self._is_foreign and not is_ahead(progress, self._clock.now())
        if is_known and self._find_next(progress) is None:
            return
        self._note(self._sink.find())
        if self._is_foreign:
            raise OtherExpression(self.name, self._progress)
        due = self._find_next(self._progress)
        if self._clock.passed() < self._yields_until or due is None:
            return
        if not due.is_done:
            # Before the sink: without lookups, perhaps for days, workers would take the right from each other each second.
            self._keys.open(due.release)
        try:
            self._note(self._sink.begin())
            while not is_stopping() and (due := self._find_next(self._progress)) is not None:
                self._store_next(due)
        except ScheduleBusy:
            self._yields_until = self._clock.passed() + _YIELD_MS
        finally:
            self._sink.end()

    def report(self) -> ScheduleReport:
        now, progress = self._clock.now(), self._progress
        ticks_waiting = None if self._waiting is None or not self._per_tick else round(self._waiting / self._per_tick, 1)
        has_begun = progress is not None and (progress.made > 0 or not progress.is_done or progress.total > 0)
        return ScheduleReport(
            name=self.name,
            expression=self._ticks.expression,
            tick=progress.tick if progress is not None and has_begun else None,
            made=progress.made if progress is not None else 0,
            total=progress.total if progress is not None else 0,
            next_tick=self._ticks.next(now),
            overdue_since=overdue_since(progress, self._ticks, now),
            problem=self.problem or self._find_pile(ticks_waiting),
            waiting=self._waiting,
            ticks_waiting=ticks_waiting,
        )

    def _find_pile(self, ticks_waiting: float | None) -> str | None:
        if ticks_waiting is None or ticks_waiting <= _PILE_TICKS:
            return None
        waiting = counted(self._waiting or 0, "request")
        return (
            f"{waiting} of {ticks_waiting:g} ticks wait for {self._receiver}, and each tick adds to them: see why it takes none, "
            "with `resequencer delivery gates`; with waiting = newest only the newest of each key waits"
        )

    def close(self) -> None:
        with self._lock:
            self._keys.close()

    @property
    def _is_foreign(self) -> bool:
        """Whether another worker has put another expression in force since ours was. The two must not change it in turn."""
        progress = self._progress
        return self._was_in_force and progress is not None and progress.is_done and progress.expression != self._ticks.expression

    def _find_next(self, progress: Progress | None) -> Progress | None:
        now = self._clock.now()
        if progress is not None and is_ahead(progress, now) and not self._clock.is_trusted:
            raise TickInFuture(self.name, progress.tick)
        return find_next(progress, self._ticks, self._missed, now)

    def _note(self, found: Progress | None) -> None:
        """Take over what is stored. If another worker has moved it in the midst of a tick, that one continues."""
        if found != self._progress:
            is_under_way = found is not None and not found.is_done
            self._yields_until = self._clock.passed() + _YIELD_MS if is_under_way else 0
        self._set(found)

    def _store_next(self, due: Progress) -> None:
        now = self._clock.now()
        if due.is_done:
            self._log_skipped(due)
            self._store([], due)
            return
        if due.after == "" and now - due.tick > GRACE_MS:
            _LOG.warning("schedule %s: tick %s is made late, at %s", self.name, instant_text(due.tick), instant_text(now))
        release = self._keys.open(due.release)
        requests, last_key = self._portion(due, release)
        after = msgspec.structs.replace(due.went_on(last_key, len(requests), now), release=release)
        self._store(requests, after)
        if after.is_done:
            log = _LOG.info if after.made else _LOG.warning
            log("schedule %s: tick %s has made %s", self.name, instant_text(after.tick), counted(after.made, "request"))

    def _log_skipped(self, due: Progress) -> None:
        before, at = self._progress, instant_text(due.tick)
        if before is None:
            _LOG.info("schedule %s: no progress is stored, so it begins at %s", self.name, at)
        elif due.expression != before.expression:
            _LOG.info("schedule %s: it is %s from %s on; before, it was %s", self.name, due.expression, at, before.expression)
        elif due.tick < before.tick:
            text = "schedule %s: the clock was ahead when tick %s was made; it continues from %s, and makes no tick a second time"
            _LOG.warning(text, self.name, instant_text(before.tick), at)
        elif due.tick > before.tick and before.was_made_ahead(due.tick):
            _LOG.info("schedule %s: tick %s was made before, while the clock was ahead", self.name, at)
        elif due.tick > before.tick:
            _LOG.warning("schedule %s: no worker began tick %s in time: it is skipped", self.name, at)

    def _portion(self, due: Progress, release: str | None) -> tuple[list[Request], bytes | None]:
        """Return the next requests, and the last key that was looked at; None: there are no further keys."""
        requests: list[Request] = []
        size = 0
        last_key = due.last_key
        for looked_at, found in enumerate(self._keys.after(due.last_key)):
            if len(requests) == _REQUESTS or size >= _BYTES or looked_at == _LOOKED_AT:
                return requests, last_key
            last_key = found.key
            if found.text is not None:
                requests.append(make_request(self.name, due.tick, found.text, release, self._payload))
                size += len(requests[-1].value)
        return requests, None

    def _store(self, requests: list[Request], progress: Progress) -> None:
        self._sink.store(requests, progress)
        self._made += len(requests)
        self._set(progress)

    def _set(self, progress: Progress | None) -> None:
        self._progress = progress
        if progress is not None and progress.is_done and progress.made:
            self._per_tick = progress.made
        self._was_in_force = self._was_in_force or (progress is not None and progress.expression == self._ticks.expression)
