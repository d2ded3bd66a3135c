"""One turn of a unit of work: what arrived is handled or stashed, what waited is taken up again. Pure: time is handed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from domain.clock import Instant
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.envelope import DataEnvelope
from domain.errors import PermanentError, TransientError
from domain.notification import Notification
from resequencer.deadline import deadline_of, find_learned_wait_ms
from resequencer.effects import Effects
from resequencer.handlers.port import Marks
from resequencer.payment_data import PaymentData
from resequencer.rules import Rules
from resequencer.stash import Stashed
from resequencer.unit import REMEMBERED_ENVELOPES, Decision, Release, Retry, Unit, Wake
from resequencer.unit_codec import encode_data, encode_entry, encode_state
from storage.port import UnitChange, WaitKind, Waits


class Turned(NamedTuple):
    """The unit as it is now, and what is to be done."""

    unit: Unit
    decision: Decision


class Led(NamedTuple):
    """The unit as it is now, what is to leave, in its order, and whether anything was handled or stashed."""

    unit: Unit
    outgoing: Sequence[Notification | DeadLetter]
    counts: bool


def decide(unit: Unit, envelopes: Iterable[DataEnvelope], wakes: Iterable[Wake], now: Instant, rules: Rules) -> Turned:
    """The turn of a unit to which these envelopes came (in order of arrival), and then these wakes.

    A wake may be early or doubled: nothing happens then. A deadline is due only when everything that lay in the partition
    at its instant has been read; whoever wakes the unit knows that.
    """
    turn = Turn(unit, rules, now)
    for envelope in envelopes:
        turn.receive(envelope)
    for wake in wakes:
        turn.wake(wake)
    return turn.end()


def lead(unit: Unit, envelope: DataEnvelope | None, rules: Rules) -> Led:
    """The turn of a unit to which this envelope came, or whose stash is released, for whoever keeps no units: nothing is
    made of it that only a storage has to know, and nothing tells time.
    """
    turn = Turn(unit, rules, 0)
    if envelope is None:
        turn.wake(Wake.BOUND)
    else:
        turn.receive(envelope)
    return turn.led()


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
        self._effects = Effects(unit, now)
        self._is_changed = self._effects.bury_spoiled()

    # What may happen to a unit

    def receive(self, envelope: DataEnvelope) -> None:
        """Tell duplicates first, before anything counts; then handle or stash."""
        self._effects.arrive(envelope.offset)
        known = self._find_known(envelope)
        if known is not None:
            self._refuse_known(envelope, known)
            return
        self._is_changed = True
        try:
            self._data.refuse_too_many(envelope)
            self._state = self._strategy.observe(self._state, envelope)
            entry = Stashed(envelope, self._strategy.rank(envelope), self._now)
            accepts = self._is_free and self._strategy.accepts(self._state, envelope)
        except PermanentError as error:
            self._effects.bury(envelope.record, DeadLetterReason.HANDLER_FAILED, str(error))
            return
        if accepts:
            self._gather_with(envelope)
            self._attempt(entry)
            self._unstash(entry.rank.lane)
        else:
            self._put_aside(entry)

    def wake(self, kind: Wake) -> None:
        if kind is Wake.RETRY:
            self._try_again()
        elif kind is Wake.BOUND or self._is_past_deadline():
            self._release(kind)

    def end(self) -> Turned:
        unit, effects = self._unit(), self._effects
        waits = self._waits()
        decision = Decision(
            self._change(unit, waits) if self._is_changed else None,
            tuple(effects.outgoing),
            waits,
            tuple(effects.releases),
            effects.tally,
            tuple(effects.added),
            tuple(effects.removed),
        )
        return Turned(unit, decision)

    def led(self) -> Led:
        return Led(self._unit(), self._effects.outgoing, self._effects.has_counted)

    def _unit(self) -> Unit:
        if not self._is_changed:
            return self._before
        unit = self._before.unit
        return Unit(unit, self._state, self._stash, self._data, self._handled, self._retry, self._gathered_to)

    # Duplicates

    def _find_known(self, envelope: DataEnvelope) -> bytes | None:
        retry = self._retry
        if retry is not None and retry.entry.envelope.id_hash == envelope.id_hash:
            return retry.entry.envelope.digest
        return self._handled.find(envelope.id_hash) or self._stash.ids.find(envelope.id_hash)

    def _refuse_known(self, envelope: DataEnvelope, digest: bytes) -> None:
        if digest == envelope.digest:
            self._effects.count("duplicates")
            return
        error = (
            f"envelope id {envelope.envelope_id!r} was seen before with another flow, sequence or object body; "
            "requeue it under an id of its own if both are meant"
        )
        self._effects.bury(envelope.record, DeadLetterReason.CONFLICTING_DUPLICATE, error)

    # Stashing and unstashing

    @property
    def _is_free(self) -> bool:
        """Nothing is under retry: whatever is acceptable may be handled."""
        return self._retry is None

    def _put_aside(self, entry: Stashed) -> None:
        self._effects.count("stashed")
        wait_ms = find_learned_wait_ms(entry.envelope, self._rules)
        entry = entry if wait_ms is None else msgspec.structs.replace(entry, learned_wait_ms=wait_ms)
        self._stash = self._stash.add(entry)
        self._has_gathered = False
        self._effects.stash(entry)
        self._keep_bound()

    def _keep_bound(self) -> None:
        """While the head is under retry nothing can be released; the bound counts again when that is over."""
        if len(self._stash) > self._rules.settings.stash_limit:
            self._release(Wake.BOUND)

    def _unstash(self, lane: str) -> None:
        """Take up what has become acceptable, from the top of the lane, until nothing moves."""
        while self._is_free and (top := self._stash.find_top(lane)) is not None:
            if not self._accepts(top):
                break
            self._gather_with(top.envelope)
            self._stash = self._stash.without_top(top)
            self._attempt(top)

    def _accepts(self, top: Stashed) -> bool:
        """A strategy that fails on an envelope gets it out of the way: handling it asks again and buries it."""
        try:
            return self._strategy.accepts(self._state, top.envelope)
        except PermanentError:
            return True

    def _gather_with(self, envelope: DataEnvelope) -> None:
        """On completion the data of everything stashed is taken over, in order of arrival, before anything is handled."""
        if not self._strategy.gathers or self._has_gathered or not self._stash:
            return
        waiting = {each.envelope.offset: each.envelope for each in self._stash} | {envelope.offset: envelope}
        for offset in sorted(waiting):
            if offset > self._gathered_to:
                self._data = self._data.absorb(waiting[offset])
                self._gathered_to = offset
        self._has_gathered = True

    # Handling

    def _attempt(self, entry: Stashed, attempts: int = 0, *, is_forced: bool = False) -> None:
        """Handle one envelope: all of it leaves, or it is tried again later, or it is buried. In each case the unit goes on."""
        envelope, data = entry.envelope, self._data
        try:
            marks = Marks(self._incomplete, not is_forced and self._strategy.is_late(self._state, envelope))
            data = self._data_with(envelope, marks)
            handled = self._rules.handler.handle(envelope, data, marks, self._now)
            state = self._counted(envelope, is_forced=is_forced)
        except TransientError as error:
            if attempts + 1 < self._rules.settings.max_attempts:
                self._postpone(entry, attempts + 1, is_forced=is_forced)
            else:
                self._give_up(entry, f"{error} (attempt {attempts + 1} of {attempts + 1})", data, is_forced=is_forced)
        except PermanentError as error:
            self._give_up(entry, str(error), data, is_forced=is_forced)
        else:
            self._state, self._data = state, data
            self._handled = self._handled.add(envelope.id_hash, envelope.digest, REMEMBERED_ENVELOPES)
            self._effects.notify(entry, handled, marks)

    def _data_with(self, envelope: DataEnvelope, marks: Marks) -> PaymentData:
        """What comes late fills only what is missing: no later object is undone by an earlier one."""
        if marks.late:
            return self._data.fill(envelope)
        return self._data.absorb(envelope) if envelope.offset > self._gathered_to else self._data

    def _counted(self, envelope: DataEnvelope, *, is_forced: bool) -> Any:
        return (self._strategy.forced if is_forced else self._strategy.handled)(self._state, envelope)

    def _postpone(self, entry: Stashed, attempts: int, *, is_forced: bool) -> None:
        settings = self._rules.settings
        jitter = self._rules.chance.uniform(1 - settings.jitter_factor, 1 + settings.jitter_factor)
        due_at = self._now + round(settings.delay_ms(attempts) * jitter)
        self._retry = Retry(entry, attempts, due_at, self._incomplete, is_forced)
        self._effects.count("retries")
        self._effects.stash(entry)

    def _give_up(self, entry: Stashed, error: str, data: PaymentData, *, is_forced: bool) -> None:
        """The envelope is buried, its id not remembered; its data counts, and its successors are not kept waiting for it."""
        self._data = data
        try:
            counted = self._counted(entry.envelope, is_forced=is_forced)
            self._state = self._strategy.buried(counted, entry.envelope)
        except PermanentError as again:
            error = f"{error}; {again}"
        self._effects.bury_entry(entry, error)

    def _try_again(self) -> None:
        retry = self._retry
        if retry is None or retry.due_at > self._now:
            return
        self._is_changed = True
        self._retry, self._incomplete = None, retry.incomplete
        self._attempt(retry.entry, retry.attempts, is_forced=retry.is_forced)
        self._unstash(retry.entry.rank.lane)
        self._incomplete = None
        for lane in self._stash.names:
            self._unstash(lane)
        self._keep_bound()

    # Releasing

    def _is_past_deadline(self) -> bool:
        oldest = self._stash.oldest
        return oldest is not None and self._is_free and deadline_of(oldest, self._rules.settings) <= self._now

    def _release(self, cause: Wake) -> None:
        """Force the lowest, run the normal loop, and again until nothing waits (or a handler asks for time)."""
        oldest, lowest = self._stash.oldest, self._stash.lowest
        if oldest is None or lowest is None or not self._is_free:
            return
        self._is_changed = True
        before, missing = len(self._stash), self._missing(lowest)
        self._gather_with(oldest.envelope)
        for entry in sorted(self._stash, key=_by_order):
            self._force(entry)
        self._incomplete = None
        released, waited_ms = before - len(self._stash), self._now - oldest.stashed_at
        source_position = str(oldest.envelope.record.origin)
        self._effects.releases.append(Release(self._before.unit, cause, missing, released, waited_ms, source_position))

    def _force(self, entry: Stashed) -> None:
        """Unless the normal loop took it already, or the one before it is to be tried again first."""
        if self._is_free and self._stash.ids.find(entry.envelope.id_hash) is not None:
            self._incomplete = self._missing(entry)
            self._stash = self._stash.without_top(entry)
            self._attempt(entry, is_forced=True)
            self._unstash(entry.rank.lane)

    def _missing(self, entry: Stashed) -> str:
        try:
            return self._strategy.missing(self._state, entry.envelope)
        except PermanentError:
            return "unknown"

    # What the storage and the guardian learn

    def _change(self, unit: Unit, waits: Waits | None) -> UnitChange:
        return UnitChange(
            unit.unit,
            encode_state(unit, self._strategy),
            self._now,
            waits,
            tuple([encode_entry(each) for each in self._effects.added.values()]),
            tuple(self._effects.removed),
            None if self._data is self._before.data else encode_data(self._data),
        )

    def _waits(self) -> Waits | None:
        """The instant at which the unit wants to be woken. Its deadline rests while the head is under retry."""
        stash, retry, oldest = self._stash, self._retry, self._stash.oldest
        if retry is not None:
            since = min(each.stashed_at for each in (retry.entry, oldest) if each is not None)
            waits_for = f"attempt {retry.attempts + 1} of {self._rules.settings.max_attempts}"
            stashed, size = len(stash) + 1, stash.size + retry.entry.size
            return Waits(retry.due_at, WaitKind.RETRY, since, waits_for, self._strategy.name, stashed, size)
        lowest = stash.lowest
        if oldest is None or lowest is None:
            return None
        deadline_at, waits_for = deadline_of(oldest, self._rules.settings), self._missing(lowest)
        return Waits(deadline_at, WaitKind.DEADLINE, oldest.stashed_at, waits_for, self._strategy.name, len(stash), stash.size)


def _by_order(entry: Stashed) -> tuple[int, int]:
    return entry.order
