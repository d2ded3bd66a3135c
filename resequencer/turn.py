"""One turn of a unit of work: what arrived is handled or stashed, what waited is taken up again. Pure: time is handed in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from domain.clock import Instant
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.envelope import DataEnvelope
from domain.errors import PermanentError, TransientError
from domain.notification import Notification
from resequencer.handlers.port import Handler, Marks
from resequencer.settings import ResequencerSettings
from resequencer.stash import Stashed
from resequencer.strategies.port import Strategy
from resequencer.unit import REMEMBERED_ENVELOPES, Decision, Release, Retry, Tally, Unit, Wake
from resequencer.unit_codec import encode_data, encode_entry, encode_state
from storage.port import StashEntry, UnitChange, WaitKind, Waits


class Chance(Protocol):
    """Where jitter comes from; `random.Random` is one."""

    def uniform(self, a: float, b: float) -> float: ...


class Rules(msgspec.Struct, frozen=True):
    """What decides beside state, input and time."""

    strategy: Strategy
    handler: Handler
    settings: ResequencerSettings
    chance: Chance


def decide(unit: Unit, envelopes: Iterable[DataEnvelope], wakes: Iterable[Wake], now: Instant, rules: Rules) -> Decision:
    """The turn of a unit to which these envelopes came (in order of arrival), and then these wakes .

    A wake may be early or doubled: nothing happens then. A deadline is due only when everything that lay in the partition
    at its instant has been read; whoever wakes the unit knows that.
    """
    turn = Turn(unit, rules, now)
    turn.bury_spoiled()
    for envelope in envelopes:
        turn.receive(envelope)
    for wake in wakes:
        turn.wake(wake)
    return turn.decision()


class Turn:
    """The working copy of a unit during one turn; nothing outside ever sees it half done."""

    def __init__(self, unit: Unit, rules: Rules, now: Instant) -> None:
        self._before = unit
        self._rules = rules
        self._strategy = rules.strategy
        self._now = now
        self._state: Any = unit.strategy_state
        self._stash = unit.stash
        self._data = unit.data
        self._handled = unit.handled
        self._retry = unit.retry
        self._gathered_to = unit.gathered_to
        self._has_gathered = False
        self._incomplete: str | None = None
        self._outgoing: list[Notification | DeadLetter] = []
        self._releases: list[Release] = []
        self._arrived: set[int] = set()
        self._added: dict[int, StashEntry] = {}
        self._removed: list[int] = []
        self._counts = dict.fromkeys(Tally.__struct_fields__, 0)
        self._is_changed = False

    # What may happen to a unit

    def bury_spoiled(self) -> None:
        """Stashed records that the configuration of today refuses leave as dead letters."""
        for each in self._before.spoiled:
            self._outgoing.append(DeadLetter(each.record, each.reason, each.error, self._now))
            self._removed.append(each.record.origin.offset)
            self._is_changed = True

    def receive(self, envelope: DataEnvelope) -> None:
        """Tell duplicates first, before anything counts; then handle or stash."""
        self._counts["arrived"] += 1
        self._arrived.add(envelope.offset)
        known = self._find_known(envelope)
        if known is not None:
            self._refuse_known(envelope, known)
            return
        self._is_changed = True
        try:
            self._state = self._strategy.observe(self._state, envelope)
            if self._is_free and self._strategy.accepts(self._state, envelope):
                self._gather_with(envelope)
                self._attempt(Stashed(envelope, self._strategy.rank(envelope), self._now))
                self._unstash()
            else:
                self._put_aside(Stashed(envelope, self._strategy.rank(envelope), self._now))
        except PermanentError as error:
            self._bury(envelope, str(error))

    def wake(self, kind: Wake) -> None:
        if kind is Wake.RETRY:
            self._try_again()
        elif kind is Wake.BOUND or self._is_past_deadline():
            self._release(kind)

    # How it is done

    @property
    def _is_free(self) -> bool:
        """Nothing is under retry: whatever is acceptable may be handled."""
        return self._retry is None

    def _find_known(self, envelope: DataEnvelope) -> bytes | None:
        retry = self._retry
        if retry is not None and retry.entry.envelope.id_hash == envelope.id_hash:
            return retry.entry.envelope.digest
        return self._handled.find(envelope.id_hash) or self._stash.ids.find(envelope.id_hash)

    def _refuse_known(self, envelope: DataEnvelope, digest: bytes) -> None:
        if digest == envelope.digest:
            self._counts["duplicates"] += 1
            return
        error = (
            f"envelope id {envelope.envelope_id!r} was seen before with another flow, sequence or object body; "
            "requeue it under an id of its own if both are meant"
        )
        self._outgoing.append(DeadLetter(envelope.record, DeadLetterReason.CONFLICTING_DUPLICATE, error, self._now))

    def _put_aside(self, stashed: Stashed) -> None:
        self._counts["stashed"] += 1
        self._stash = self._stash.add(stashed)
        self._has_gathered = False
        self._added[stashed.envelope.offset] = encode_entry(stashed)
        if len(self._stash) > self._rules.settings.stash_limit:
            self._release(Wake.BOUND)

    def _take(self, stashed: Stashed) -> None:
        self._stash = self._stash.without_top(stashed)

    def _unstash(self) -> None:
        """Take up what has become acceptable, from the top of each lane, until nothing moves."""
        has_moved = True
        while has_moved and self._is_free:
            has_moved = False
            for lane, _ in self._stash.lanes:
                has_moved = self._unstash_lane(lane) or has_moved

    def _unstash_lane(self, lane: str) -> bool:
        has_moved = False
        while self._is_free and (top := self._stash.find_top(lane)) is not None:
            if not self._accepts(top):
                break
            self._gather_with(top.envelope)
            self._take(top)
            self._attempt(top)
            has_moved = True
        return has_moved

    def _accepts(self, top: Stashed) -> bool:
        """A strategy that fails on an envelope gets it out of the way: handling it asks again and buries it."""
        try:
            return self._strategy.accepts(self._state, top.envelope)
        except PermanentError:
            return True

    def _gather_with(self, envelope: DataEnvelope) -> None:
        """On completion the data of everything stashed is taken over, in order of arrival, before anything is handled."""
        if not self._strategy.gathers or not self._stash or self._has_gathered:
            return
        waiting = {each.envelope.offset: each.envelope for each in self._stash} | {envelope.offset: envelope}
        for offset in sorted(waiting):
            if offset > self._gathered_to:
                self._data = self._data.absorb(waiting[offset])
                self._gathered_to = offset
        self._has_gathered = True

    def _attempt(self, entry: Stashed, attempts: int = 0, *, is_forced: bool = False) -> None:
        """Handle one envelope: all of it leaves, or it is tried again later, or it is buried. In each case the unit goes on."""
        envelope = entry.envelope
        data = self._data.absorb(envelope) if envelope.offset > self._gathered_to else self._data
        try:
            is_late = not is_forced and self._strategy.is_late(self._state, envelope)
            handled = self._rules.handler.handle(envelope, data, Marks(self._incomplete, is_late), self._now)
            state = (self._strategy.forced if is_forced else self._strategy.handled)(self._state, envelope)
        except TransientError as error:
            self._postpone(entry, attempts + 1, str(error), data, is_forced=is_forced)
            return
        except PermanentError as error:
            self._give_up(entry, str(error), data, is_forced=is_forced)
            return
        self._state, self._data = state, data
        self._handled = self._handled.add(envelope.id_hash, envelope.digest, REMEMBERED_ENVELOPES)
        self._outgoing += handled.notifications
        self._counts["handled"] += 1
        self._counts["unmatched"] += handled.unmatched
        self._counts["late"] += is_late
        self._counts["incomplete"] += self._incomplete is not None
        self._leave(entry)

    def _leave(self, entry: Stashed) -> None:
        """It is in the stash no more, as far as storage and figures are concerned."""
        offset = entry.envelope.offset
        self._counts["longest_wait_ms"] = max(self._counts["longest_wait_ms"], self._now - entry.stashed_at)
        if self._added.pop(offset, None) is None and self._was_stashed(entry):
            self._removed.append(offset)

    def _was_stashed(self, entry: Stashed) -> bool:
        """Told by the record, for a buried one's id may come again in the same turn."""
        return entry.envelope.offset not in self._arrived

    def _postpone(self, entry: Stashed, attempts: int, error: str, data: Any, *, is_forced: bool) -> None:
        settings = self._rules.settings
        if attempts >= settings.max_attempts:
            self._give_up(entry, f"{error} (attempt {attempts} of {settings.max_attempts})", data, is_forced=is_forced)
            return
        jitter = self._rules.chance.uniform(1 - settings.jitter_factor, 1 + settings.jitter_factor)
        due_at = self._now + round(settings.delay_ms(attempts) * jitter)
        self._retry = Retry(entry, attempts, due_at, self._incomplete, is_forced)
        self._counts["retries"] += 1
        if not self._was_stashed(entry):
            self._added[entry.envelope.offset] = encode_entry(entry)

    def _give_up(self, entry: Stashed, error: str, data: Any, *, is_forced: bool) -> None:
        """The envelope is buried, its id not remembered; its data counts, and its successors are not kept waiting for it."""
        self._data = data
        try:
            self._state = (self._strategy.forced if is_forced else self._strategy.handled)(self._state, entry.envelope)
        except PermanentError as again:
            error = f"{error}; {again}"
        self._bury(entry.envelope, error)
        self._leave(entry)

    def _bury(self, envelope: DataEnvelope, error: str) -> None:
        self._outgoing.append(DeadLetter(envelope.record, DeadLetterReason.HANDLER_FAILED, error, self._now))

    def _try_again(self) -> None:
        retry = self._retry
        if retry is None or retry.due_at > self._now:
            return
        self._is_changed = True
        self._retry, self._incomplete = None, retry.incomplete
        self._attempt(retry.entry, retry.attempts, is_forced=retry.is_forced)
        self._incomplete = None
        self._unstash()

    def _is_past_deadline(self) -> bool:
        oldest = self._stash.oldest
        return oldest is not None and self._is_free and self._deadline_of(oldest) <= self._now

    def _deadline_of(self, oldest: Stashed) -> Instant:
        return oldest.stashed_at + self._rules.settings.deadline_ms

    def _release(self, cause: Wake) -> None:
        """Force the lowest, run the normal loop, and again until nothing waits (or a handler asks for time)."""
        oldest, lowest = self._stash.oldest, self._stash.lowest
        if oldest is None or lowest is None or not self._is_free:
            return
        self._is_changed = True
        before, missing = len(self._stash), self._missing(lowest)
        self._gather_with(oldest.envelope)
        while (forced := self._next_to_force()) is not None:
            self._incomplete = self._missing(forced)
            self._take(forced)
            self._attempt(forced, is_forced=True)
            self._unstash()
        self._incomplete = None
        waited_ms = self._now - oldest.stashed_at
        released = before - len(self._stash)
        self._releases.append(Release(self._before.unit, cause, missing, released, waited_ms, str(oldest.envelope.record.origin)))

    def _next_to_force(self) -> Stashed | None:
        return self._stash.lowest if self._is_free else None

    def _missing(self, entry: Stashed) -> str:
        try:
            return self._strategy.missing(self._state, entry.envelope)
        except PermanentError:
            return "unknown"

    # What it leads to

    def decision(self) -> Decision:
        unit = self._before
        if self._is_changed:
            unit = Unit(unit.unit, self._state, self._stash, self._data, self._handled, self._retry, self._gathered_to)
        waits = self._waits()
        return Decision(
            unit,
            self._change(unit, waits) if self._is_changed else None,
            tuple(self._outgoing),
            waits,
            tuple(self._releases),
            Tally(**self._counts),
            tuple(self._added),
            tuple(self._removed),
        )

    def _change(self, unit: Unit, waits: Waits | None) -> UnitChange:
        return UnitChange(
            unit.unit,
            encode_state(unit, self._strategy),
            self._now,
            waits,
            tuple(self._added.values()),
            tuple(self._removed),
            None if self._data is self._before.data else encode_data(self._data),
        )

    def _waits(self) -> Waits | None:
        """The instant at which the unit wants to be woken. Its deadline rests while the head is under retry."""
        oldest, lowest, retry = self._stash.oldest, self._stash.lowest, self._retry
        strategy, stashed, size = self._strategy.name, len(self._stash), self._stash.size
        if retry is not None:
            since = min(each.stashed_at for each in (retry.entry, oldest) if each is not None)
            waits_for = f"attempt {retry.attempts + 1} of {self._rules.settings.max_attempts}"
            return Waits(retry.due_at, WaitKind.RETRY, since, waits_for, strategy, stashed + 1, size + retry.entry.size)
        if oldest is None or lowest is None:
            return None
        waits_for, deadline_at = self._missing(lowest), self._deadline_of(oldest)
        return Waits(deadline_at, WaitKind.DEADLINE, oldest.stashed_at, waits_for, strategy, stashed, size)
