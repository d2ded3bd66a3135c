"""One turn of a unit of work: what it needs, what it leads to, and the steps that all turns share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from resequencer.batch import WITHOUT_END, UnitKey
from resequencer.call import Answer, Call
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter, DeadLetterReason
from resequencer.errors import PermanentError, TransientError
from resequencer.event import FIRST_FORMAT, Event
from resequencer.handler import UNMARKED, DataHandler, Handled, Handler, Marks, Profiles
from resequencer.notification import Fact, Notification
from resequencer.order import OrderOutcome
from resequencer.record import Record
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import UnitChange, Waits
from resequencer.strategies.port import Strategy
from resequencer.turn.retry import Chance, next_attempt
from resequencer.unit import Entry, Remainder, Retry, Unit, Wake, entry_of, place_of


class TurnContext(msgspec.Struct, frozen=True):
    """A worker's strategy, handlers of events and of data, settings, source of jitter, and flow profiles if there are any.

    With `stores_turns` each turn that changes its unit says what is to be stored, as a durable storage needs it. Without it only
    the turn before the actor stops does: until then nothing but the actor is asked for the unit.

    With `waits` the handler is not called in the turn: the turn ends with a call, and a later one has its answer.

    A record with the header `requeued_mark` is a possible duplicate, and so is what the handler makes of it.

    `strategy_key` is the configuration key of the strategy, for errors. `events` names the format of the events. `step`,
    `arrived`, `next_lane`, `gathers` and `releases_by_wait` are the strategy's, looked up once.
    """

    strategy: Strategy
    handler: Handler
    data_handler: DataHandler
    settings: ResequencerSettings
    chance: Chance
    profiles: Profiles | None = None
    stores_turns: bool = True
    waits: bool = False
    requeued_mark: tuple[str, bytes] | None = None
    strategy_key: str = "strategy"
    events: str = FIRST_FORMAT
    step: Callable[[Any, Event], tuple[Any, bool] | None] | None = None
    arrived: Callable[[Event, Instant], Event] | None = None
    next_lane: Callable[[Event], str | None] | None = None
    gathers: bool = False
    releases_by_wait: bool = False

    def __post_init__(self) -> None:
        force_setattr(self, "step", getattr(self.strategy, "step", None))
        force_setattr(self, "arrived", getattr(self.strategy, "arrived", None))
        force_setattr(self, "next_lane", getattr(self.strategy, "next_lane", None))
        force_setattr(self, "gathers", self.strategy.gathers)
        force_setattr(self, "releases_by_wait", getattr(self.strategy, "releases_by_wait", False))

    def new_unit(self, name: str) -> Unit:
        """Return a unit of which nothing is known."""
        return Unit(name, self.strategy.initial(), self.data_handler.empty)

    def release_order(self, unit: Unit, last: int) -> Iterator[Entry]:
        """Yield what is stashed in the order of a release: by place and arrival, first what waits for nothing that is stashed.

        What came after the offset `last` is not part of the release. What is behind a cycle, or in one, is yielded while the unit
        is free and has it; in place of it, the cycle's first.
        """
        entries = sorted([each for each in unit.stash if each.offset <= last], key=place_of)
        if self.next_lane is None:
            yield from entries
            return
        freed = self._freed_by(unit)
        yield from [each for each in entries if each.lane not in freed]
        for each in entries:
            while each.lane in freed and unit.is_free and unit.has(each):
                yield self.first_before(unit, each)

    def find_lowest(self, unit: Unit) -> Entry | None:
        """Return the stashed envelope that a release forces first; None without a stash."""
        if self.next_lane is None:
            return unit.lowest
        freed = self._freed_by(unit)
        lowest = min(unit.stash, key=lambda each: (each.lane in freed, *place_of(each)), default=None)
        return None if lowest is None else _first_of(freed, lowest)

    def first_before(self, unit: Unit, entry: Entry) -> Entry:
        """Return the stashed envelope that must be handled first, so that this one, which is stashed, can be."""
        if self.next_lane is None:
            return unit.find_top(entry.lane) or entry
        return _first_of(self._freed_by(unit), entry)

    def _freed_by(self, unit: Unit) -> dict[str | None, Entry]:
        """Return the stashed envelopes by the lanes that they free."""
        assert self.next_lane is not None, "only of a strategy with next lanes"
        return {self.next_lane(each.envelope): each for each in unit.stash}


def _first_of(freed: Mapping[str | None, Entry], entry: Entry) -> Entry:
    """Return the first of the chain before this entry: what waits for nothing that is stashed, or one of a cycle."""
    seen = set[str]()
    while entry.lane in freed and entry.lane not in seen:
        seen.add(entry.lane)
        entry = freed[entry.lane]
    return entry


Output = Notification | DeadLetter | OrderOutcome | Fact
"""What a turn lets out, in the order of publication."""


class Release(msgspec.Struct, frozen=True):
    """The release of a stash although something is missing: the cause, what is missing, and how many envelopes.

    `waited_ms` and `source_position` are those of the oldest envelope. `is_rest` is set if an earlier turn began the release.
    """

    unit: str
    cause: Wake
    missing: str
    envelopes: int
    waited_ms: int
    source_position: str
    is_rest: bool = False


class Turn:
    """A turn of a unit, which it changes in place.

    While it runs: `current` is the present envelope; an exception is attributed to it (poison.py). `incomplete` is what is
    missing for the envelope that is being handled. `released_to` is the highest offset of the release that it is part of, and
    `cause` that of a release that goes through the whole stash; with `is_ordered` an order released it. `tried` is the retry that
    is attempted in this turn, `answer` that of its handler. `has_gathered` is set if the data of the whole stash was taken over.
    A turn lets out about `budget` bytes at most; the rest is the unit's remainder.

    Afterwards: `output` is in the order of publication. `is_changed` is set if the unit changed, `is_last` if it was idle and its
    actor can stop. `change` is what is to be stored, None for nothing. `waits` is when and why the unit must be woken, None if
    nothing waits. `call` is the call that is to begin once this turn is committed, and `called` the head whose handler is called.
    `added` has the entries that came and wait, by their offsets. `removed` has the offsets that left the stash, and `waited_ms`
    how long the storage had each of them in it. `written_at` has the timestamps of the handled records that have one.
    `output_bytes` is about the bytes of the output, `written_bytes` those and the unit's data, if they are to be stored. The
    others count; `longest_wait_ms` is the longest wait of an envelope that left the stash.
    """

    key: UnitKey
    current: Event | None = None
    is_ordered = False
    tried: Retry | None = None
    answer: Answer | None = None
    cause: Wake | None = None
    has_gathered = False

    is_last = False
    call: Call | None = None
    called: Retry | None = None
    change: UnitChange | None = None
    waits: Waits | None = None
    written_bytes = 0
    data_bytes = 0

    duplicates = 0
    late = 0
    incompletes = 0
    retries = 0
    unmatched = 0
    suppressed = 0

    def __init__(self, unit: Unit, context: TurnContext, now: Instant, budget: int = WITHOUT_END) -> None:
        self.unit = unit
        self.context = context
        self.strategy = context.strategy
        self.step = context.step
        self.now = now
        self.budget = budget
        # As attributes of the instance, because each envelope reads them.
        self.incomplete: str | None = None
        self.released_to = -1
        self.is_changed = False
        self.output_bytes = self.arrived = self.handled = self.stashed = self.longest_wait_ms = 0
        self.output: list[Output] = []
        self.releases: list[Release] = []
        self.added: dict[int, Entry] = {}
        self.removed: list[int] = []
        self.waited_ms: list[int] = []
        self.written_at: list[Instant] = []
        self.data_before = unit.data

    @property
    def is_over(self) -> bool:
        """Whether the stash was released and nothing waits: the actor can stop."""
        return bool(self.releases) and self.waits is None

    @property
    def may_be_late(self) -> bool:
        """Whether what is forced may be late: it is above all that was handled, except where a chain has its own lanes."""
        return self.context.next_lane is not None

    @property
    def is_spent(self) -> bool:
        """Whether the turn's output budget is used up."""
        return self.output_bytes >= self.budget

    def entry(self, envelope: Event) -> Entry:
        """Return the stash entry of an envelope that arrived now.

        Raises:
            PermanentError: The user's own strategy fails.
        """
        return entry_of(envelope, *self.strategy.rank(envelope), self.now)

    def missing(self, entry: Entry) -> str:
        """Return what an envelope waits for."""
        try:
            return self.strategy.missing(self.unit.state, entry.envelope)
        except PermanentError:
            return "unknown"

    def unmark(self) -> None:
        """End the marks of a release."""
        self.incomplete, self.released_to, self.is_ordered, self.cause = None, -1, False, None

    def cut_off(self, lane: str | None = None) -> None:
        """End the turn here, in the loop of this lane. The next turn continues."""
        self.unit.amend(remainder=Remainder(lane, self.incomplete, self.released_to, is_ordered=self.is_ordered))

    # Effects

    def note_stashed(self, entry: Entry) -> None:
        """Note that an envelope that came in this turn waits. The storage has every other one that waits."""
        self.added[entry.order[2]] = entry

    def note_unstashed(self, entry: Entry) -> None:
        """Note that an entry no longer waits. If it came in an earlier turn, the storage has it."""
        offset, waited_ms = entry.order[2], self.now - entry.stashed_at
        if waited_ms > self.longest_wait_ms:
            self.longest_wait_ms = waited_ms
        if self.added.pop(offset, None) is None:
            self.removed.append(offset)
            self.waited_ms.append(waited_ms)

    def dead_letter(self, record: Record, reason: DeadLetterReason, error: str) -> None:
        """Add a dead letter to the output."""
        dead_letter = DeadLetter(record, reason, error, self.now)
        self.output.append(dead_letter)
        self.output_bytes += dead_letter.size

    def report(self, outcome: OrderOutcome) -> None:
        """Add the outcome of an order to the output. It is small, and counts for no output budget."""
        self.output.append(outcome)

    # Steps

    def gather_with(self, envelope: Event) -> None:
        """Take over the data of all stashed envelopes and of this one, in order of arrival, if the strategy gathers."""
        unit = self.unit
        if not self.context.gathers or self.has_gathered or not unit.stash:
            return
        waiting = {each.envelope.offset: each.envelope for each in unit.stash} | {envelope.offset: envelope}
        if unit.retry is not None:
            waiting[unit.retry.entry.offset] = unit.retry.entry.envelope
        data, gathered_to = unit.data, unit.gathered_to
        for offset in sorted(waiting):
            if offset > unit.gathered_to:
                self.current = waiting[offset]
                data = self.context.data_handler.absorb(data, self.current)
                unit.gathered_to = offset
        self._keep(data)
        self.has_gathered = True
        if self.incomplete is not None and unit.gathered_to > gathered_to:  # More has come since the release began.
            with suppress(PermanentError):
                self.incomplete = self.strategy.missing(unit.state, envelope) or None

    def unstash(self, lane: str, after: Event | None = None) -> None:
        """Handle envelopes from the top of the lane, until none is acceptable or the turn's output budget is used up.

        Then those in the lanes that they free go, and those in the one that `after`, which was just handled, frees.
        """
        unit, step, next_lane = self.unit, self.step, self.context.next_lane
        freed: list[tuple[str, str | None]] = []
        if next_lane is not None and after is not None and (next_one := next_lane(after)) is not None:
            freed.append((next_one, self.incomplete))
        while unit.stash and (unit.rare is None or unit.is_free):
            top, ahead = unit.find_top(lane), None
            if top is not None and step is not None:
                ahead = step(unit.state, top.envelope)
            if top is None or (ahead is None and (step is not None or not self._accepts(top))):
                if not freed:
                    break
                lane, self.incomplete = freed.pop(0)
                continue
            if self.output_bytes >= self.budget:
                self.cut_off(lane)
                break
            self.gather_with(top.envelope)
            self.current = top.envelope
            if top.order[2] > self.released_to:
                self.incomplete = None  # It came after the release: the release's mark counts neither for it nor for later ones.
            unit.remove(top)
            self.attempt(top.envelope, top, ahead)
            if next_lane is not None and (next_one := next_lane(top.envelope)) is not None:
                freed.append((next_one, self.incomplete))

    def unstash_again(self, lane: str) -> None:
        """Continue `unstash` where it was interrupted in this lane. Where lanes free others, all others are looked at then."""
        incomplete = self.incomplete
        self.unstash(lane)
        if self.context.next_lane is not None and self.unit.is_free:
            self.unstash_each(incomplete)

    def unstash_each(self, incomplete: str | None = None) -> None:
        """Handle what is acceptable in each lane, with this mark, until nothing can be handled any more."""
        for lane in self.unit.lanes if self.unit.is_free else ():
            self.incomplete = incomplete
            self.unstash(lane)
            if not self.unit.is_free:
                break

    def attempt(
        self,
        envelope: Event,
        entry: Entry | None = None,
        ahead: tuple[Any, bool] | None = None,
        *,
        is_forced: bool = False,
    ) -> None:
        """Handle an envelope: add all its notifications, or put it under retry, or dead-letter it. The unit goes on.

        `entry` is the envelope's, which the caller has removed from the stash; None if it did not wait. `ahead` is the
        strategy's state after it, and whether it is late, if these are known.
        """
        unit, strategy, data = self.unit, self.strategy, self.unit.data
        self.current = envelope
        try:
            if ahead is None:
                is_late = (not is_forced or self.may_be_late) and strategy.is_late(unit.state, envelope)
            else:
                is_late = ahead[1]
            marks = UNMARKED if self.incomplete is None and not is_late else self._marked(is_late=is_late)
            if envelope.parts:
                data = self._data_with(envelope, is_late=is_late)
            if self.context.waits:
                answer = self._answer_for(entry)
                if answer is None:
                    self._call(envelope, entry, data, marks, is_forced=is_forced)
                    return
                marks, handled = answer.call.marks, answer.handled()
            else:
                handled = self.context.handler.handle(envelope, data, marks, self.now)
            state = self._counted(envelope, is_forced=is_forced) if ahead is None else ahead[0]
        except TransientError as error:
            self._postpone(envelope, entry, error, data, is_forced=is_forced)
        except PermanentError as error:
            self._give_up(envelope, entry, error, data, is_forced=is_forced)
        else:
            unit.state = state
            if data is not unit.data:
                self._keep(data)
            unit.remember(envelope)
            self._notify(envelope, handled, marks)
            if entry is not None:
                self.note_unstashed(entry)

    def dead_letter_retry(self, retry: Retry, why: PermanentError) -> None:
        """Dead-letter the entry under retry without another attempt."""
        envelope, data = retry.entry.envelope, self.unit.data
        self.current, self.is_changed = envelope, True
        self.unit.amend(retry=None)
        with suppress(PermanentError):
            is_late = (not retry.is_forced or self.may_be_late) and self.strategy.is_late(self.unit.state, envelope)
            data = self._data_with(envelope, is_late=is_late)
        self._give_up(envelope, retry.entry, why, data, is_forced=retry.is_forced)

    def dead_letter_entry(self, entry: Entry, reason: DeadLetterReason, error: str) -> None:
        """Dead-letter an envelope whose handling failed for good, and note that it no longer waits."""
        self.dead_letter(entry.envelope.record, reason, error)
        self.note_unstashed(entry)

    def call_head(self, head: Retry) -> None:
        """Prepare the call of the head's handler, with the marks that it has, and change nothing.

        Raises:
            PermanentError: A user's own strategy or data handler fails.
        """
        envelope, data = head.entry.envelope, self.unit.data
        is_late = (not head.is_forced or self.may_be_late) and self.strategy.is_late(self.unit.state, envelope)
        if envelope.parts:
            data = self._data_with(envelope, is_late=is_late)
        marks = Marks(head.incomplete, is_late, head.is_ordered and head.incomplete is not None)
        self.call = Call(envelope, data, marks, self.now, head.attempts)

    def _answer_for(self, entry: Entry | None) -> Answer | None:
        """Return the answer for this entry, once."""
        answer, tried = self.answer, self.tried
        if answer is None or tried is None or tried.entry is not entry:
            return None
        self.answer = None
        return answer

    def _call(self, envelope: Event, entry: Entry | None, data: Any, marks: Marks, *, is_forced: bool) -> None:
        """Make the entry the head of its unit, whose handler is called once this turn is committed."""
        before = self.tried if self.tried is not None and self.tried.entry is entry else None
        head = Retry(entry or self.entry(envelope), 0, self.now) if before is None else before
        behind = self.tried if before is None else before.behind
        retry = replace(
            head,
            due_at=head.due_at if head.is_called else self.now,
            incomplete=self.incomplete,
            is_forced=is_forced,
            released_to=self.released_to,
            is_ordered=self.is_ordered,
            is_called=True,
            cause=self.cause,
            behind=behind if behind is not None and self.unit.has(behind.entry) else None,
        )
        self.unit.amend(retry=retry)
        self.call = Call(envelope, data, marks, self.now, retry.attempts)
        if entry is None:
            self.note_stashed(retry.entry)

    def _accepts(self, top: Entry) -> bool:
        """Whether the envelope is acceptable. True if the strategy fails on it: the attempt then fails, too."""
        try:
            return self.strategy.accepts(self.unit.state, top.envelope)
        except PermanentError:
            return True

    def _marked(self, *, is_late: bool) -> Marks:
        return Marks(self.incomplete, is_late, self.is_ordered and self.incomplete is not None)

    def _data_with(self, envelope: Event, *, is_late: bool) -> Any:
        """Return the unit's data with what the envelope brings. A late one only adds what is missing."""
        data, handler = self.unit.data, self.context.data_handler
        if is_late:
            return handler.fill(data, envelope)
        return handler.absorb(data, envelope) if envelope.offset > self.unit.gathered_to else data

    def _keep(self, data: Any) -> None:
        if data is not self.unit.data:
            self.unit.keep(data, self.context.data_handler.size_of(data))

    def _counted(self, envelope: Event, *, is_forced: bool) -> Any:
        return (self.strategy.forced if is_forced else self.strategy.handled)(self.unit.state, envelope)

    def _notify(self, envelope: Event, handled: Handled, marks: Marks) -> None:
        """Add the notifications of a handled envelope, and behind all of them its facts."""
        output_bytes = 0
        if self.context.requeued_mark in envelope.record.headers:
            handled = _as_possible_duplicates(handled)
        for each in handled.notifications:
            self.output.append(each)
            output_bytes += each.size
        for fact in handled.facts:
            self.output.append(fact)
            output_bytes += fact.size
        self.output_bytes += output_bytes
        self.handled += 1
        written_at = envelope.record.written_at
        if written_at is not None:
            self.written_at.append(written_at)
        if handled.unmatched:
            self.unmatched += handled.unmatched
        if handled.suppressed:
            self.suppressed += handled.suppressed
        if marks.late:
            self.late += 1
        if marks.incomplete is not None:
            self.incompletes += 1

    def _give_up(self, envelope: Event, entry: Entry | None, error: PermanentError, data: Any, *, is_forced: bool) -> None:
        """Dead-letter the envelope without remembering its id. Its data counts, and its successors do not wait for it."""
        self._keep(data)
        text = str(error)
        try:
            counted = self._counted(envelope, is_forced=is_forced)
            self.unit.state = self.strategy.dead_lettered(counted, envelope)
        except PermanentError as again:
            text = f"{text}; {again}"
        self.dead_letter(envelope.record, error.reason, text)
        if entry is not None:
            self.note_unstashed(entry)

    def _postpone(self, envelope: Event, entry: Entry | None, error: TransientError, data: Any, *, is_forced: bool) -> None:
        """Make the entry the head of its unit until its next attempt, or give it up after the last."""
        before = self.tried if self.tried is not None and self.tried.entry is entry else None
        attempts, head = 0 if before is None else before.attempts, entry or self.entry(envelope)
        failed = Retry(head, attempts, self.now, self.incomplete, is_forced, self.released_to, is_ordered=self.is_ordered)
        retry = next_attempt(failed, before, error, self.context.settings, self.context.chance)
        if retry is None:
            last = PermanentError(f"{error} (attempt {attempts + 1} of {attempts + 1})")
            self._give_up(envelope, entry, last, data, is_forced=is_forced)
            return
        self.retries += retry.attempts > attempts
        self.unit.amend(retry=retry)
        if entry is None:
            self.note_stashed(head)


def _as_possible_duplicates(handled: Handled) -> Handled:
    notifications = tuple(replace(each, is_possible_duplicate=True) for each in handled.notifications)
    facts = tuple(replace(each, is_possible_duplicate=True) for each in handled.facts)
    return replace(handled, notifications=notifications, facts=facts)
