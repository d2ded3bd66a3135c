"""The course of a turn: handle or stash the arrivals, then handle stashed envelopes that are acceptable now.

Pure except for the unit, which it changes in place: the caller passes the time. A turn that raises leaves the unit as it was.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from resequencer.batch import WITHOUT_END
from resequencer.call import Answer
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetterReason
from resequencer.errors import PermanentError
from resequencer.event import Event
from resequencer.storage_port import UnitChange
from resequencer.turn.orders import carry_out, check_waiting_order, end_hold_in_time, execute_waiting_order
from resequencer.turn.release import call_again, is_beyond_bound, keep_bound, release, resume, take_up, try_again
from resequencer.turn.turn import Turn, TurnContext
from resequencer.turn.waits import find_learned_wait_ms, find_waits
from resequencer.unit import Entry, Ordered, Remainder, Unit, Wake, entry_of
from resequencer.unit_codec import encode_entry, encode_state

_OLD_DATA = object()
"""Stands for stored data of which nothing is known: whatever the unit has now is stored in their place."""


def take_turn(  # noqa: PLR0913 - the messages of a turn, by kind
    unit: Unit,
    envelopes: tuple[Event, ...],
    wakes: Iterable[Wake],
    now: Instant,
    context: TurnContext,
    budget: int = WITHOUT_END,
    orders: Iterable[Ordered] = (),
    answer: Answer | None = None,
) -> Turn:
    """Take the turn of a unit with this answer, these envelopes, in order of arrival, then these orders, and then these wakes.

    A wake may be early or doubled; it then has no effect. The caller sends a deadline only when the partition has been read up to
    where its log ended at that instant. The turn stops after about `budget` bytes of output. The remainder comes first in the
    next turn, and later arrivals wait behind it.
    """
    before = unit.saved()
    try:
        turn = Turn(unit, context, now, budget)
        run(turn, envelopes, wakes, orders, answer)
    except BaseException:
        unit.restore(before)
        raise
    return turn


def run(
    turn: Turn,
    envelopes: Iterable[Event],
    wakes: Iterable[Wake],
    orders: Iterable[Ordered] = (),
    answer: Answer | None = None,
) -> None:
    """Run a turn from its beginning to its end."""
    if answer is not None:  # First, because it counts whatever the budget is, and the others then wait.
        take_up(turn, answer)
    if turn.unit.rare is not None:
        begin(turn)
    for envelope in envelopes:
        turn.current = envelope
        receive(turn, envelope)
    turn.current = None
    for ordered in orders:
        carry_out(turn, ordered)
    for each in wakes:
        wake(turn, each)
    end(turn)


def begin(turn: Turn) -> None:
    """Dead-letter what is not decoded any more, replace old data, and continue with the remainder of the turn before."""
    unit = turn.unit
    if unit.rare is not None and unit.rare.has_old_data:
        unit.amend(has_old_data=False)
        turn.data_before, turn.is_changed = _OLD_DATA, True
    if unit.rare is None:
        return
    if unit.rare.undecodable:
        _dead_letter_undecodable(turn)
    remainder = unit.remainder
    if remainder is not None and not turn.is_spent:
        resume(turn, remainder)
        _take_queued(turn)


def receive(turn: Turn, envelope: Event) -> None:
    """Take an arrived envelope, or queue it if there is a remainder or the turn's output budget is used up."""
    turn.arrived += 1
    rare = turn.unit.rare
    if (rare is None or rare.remainder is None) and turn.output_bytes < turn.budget:
        _take(turn, envelope)
    else:
        _queue(turn, envelope)


def wake(turn: Turn, kind: Wake) -> None:
    """Wake the unit. No effect if the turn's output budget is used up: the turn then asks for the next wake.

    An idle unit lets nothing out, and needs no output budget. Of one that has changed in this turn nothing is stored.
    """
    if kind is Wake.PASSIVATE:
        turn.is_last = not turn.is_changed
    elif turn.is_spent:
        return
    elif kind is Wake.RETRY:
        try_again(turn)
    elif kind is Wake.CALL:
        call_again(turn)
    elif kind is Wake.HOLD_OVER:
        end_hold_in_time(turn)
    elif kind is Wake.ORDER:
        execute_waiting_order(turn)
    elif kind is not Wake.REMAINDER:
        release(turn, kind)


def end(turn: Turn) -> None:
    """Say what is to be stored, and when the unit must be woken."""
    unit = turn.unit
    if unit.rare is not None:
        if unit.rare.waiting_order is not None:
            check_waiting_order(turn, unit.rare.waiting_order)
        if turn.is_changed and not unit.stash:
            unit.amend(deadline_at=None)
    turn.waits = find_waits(turn) if unit.stash or unit.rare is not None else None
    if unit.rare is not None and unit.is_called:
        _note_call(turn)
    turn.data_bytes, turn.written_bytes = unit.data_bytes, turn.output_bytes
    if turn.is_last or (turn.is_changed and turn.context.stores_turns):
        turn.change = change_of(turn)
        if turn.change.data is not None and not turn.is_last:
            turn.written_bytes += len(turn.change.data)


def _note_call(turn: Turn) -> None:
    """Note the head whose handler is called, and forget a call that this turn prepared for a head of before."""
    unit, call = turn.unit, turn.call
    if unit.hold is None:
        turn.called = unit.retry
    if call is not None and (turn.called is None or turn.called.entry.envelope is not call.envelope):
        turn.call = None


def change_of(turn: Turn) -> UnitChange:
    """Return what is to be stored of the unit as it is now: with the last turn before its actor stops, all of it."""
    unit = turn.unit
    added = tuple([encode_entry(each) for each in turn.added.values()]) if turn.added else ()
    handler = turn.context.data_handler
    data = None if unit.data is (handler.empty if turn.is_last else turn.data_before) else handler.encode(unit.data)
    state = encode_state(unit, turn.strategy, turn.context.events)
    return UnitChange(unit.name, state, turn.waits, added, tuple(turn.removed), data)


def _dead_letter_undecodable(turn: Turn) -> None:
    """Add dead letters for stashed records that today's configuration refuses, as far as the output budget allows."""
    rest = deque(turn.unit.undecodable)
    while rest and not turn.is_spent:
        each = rest.popleft()
        turn.dead_letter(each.record, each.reason, each.error)
        turn.removed.append(each.record.origin.offset)
        turn.is_changed = True
    turn.unit.amend(undecodable=tuple(rest))


def _take(turn: Turn, envelope: Event, queued: Entry | None = None) -> None:
    """Check for a duplicate first, before anything is counted; then handle or stash the envelope.

    `queued` is its queue entry, which has the time of its arrival.
    """
    unit, strategy, step = turn.unit, turn.strategy, turn.step
    known = unit.find_digest(envelope.id_hash)
    if known is not None:
        _refuse_known(turn, envelope, known)
        if queued is not None:
            turn.note_unstashed(queued)
        return
    turn.is_changed = True
    ahead: tuple[Any, bool] | None = None
    entry: Entry | None = None
    try:
        if envelope.parts or turn.context.arrived is not None:
            envelope = _as_it_counts(turn, envelope, turn.now if queued is None else queued.stashed_at)
        unit.state = strategy.observe(unit.state, envelope)
        if step is None or queued is not None:
            entry = _entry(turn, envelope, queued)
        is_free = unit.rare is None or unit.is_free
        if step is None:
            accepts = is_free and strategy.accepts(unit.state, envelope)
        else:
            ahead = step(unit.state, envelope) if is_free else None
            accepts = ahead is not None
    except PermanentError as error:
        turn.dead_letter(envelope.record, error.reason, str(error))
        if queued is not None:
            turn.note_unstashed(queued)
        return
    if accepts:
        turn.gather_with(envelope)
        turn.attempt(envelope, None if queued is None else entry, ahead)
        if unit.stash:
            turn.unstash(strategy.rank(envelope).lane if entry is None else entry.lane, envelope)
    else:
        _stash(turn, entry or turn.entry(envelope), is_new=queued is None)


def _as_it_counts(turn: Turn, envelope: Event, at: Instant) -> Event:
    """Return an envelope that came at this instant, with the time that counts for the strategy.

    Raises:
        PermanentError: The unit would have too much data, or the user's own strategy fails.
    """
    unit, context = turn.unit, turn.context
    if envelope.parts:
        context.data_handler.refuse_too_much(unit.data, envelope, context.settings.stash_bytes, unit.data_bytes)
    return envelope if context.arrived is None else context.arrived(envelope, at)


def _entry(turn: Turn, envelope: Event, queued: Entry | None) -> Entry:
    if queued is None:
        return turn.entry(envelope)
    return entry_of(envelope, *turn.strategy.rank(envelope), queued.stashed_at, queued.learned_wait_ms)


def _refuse_known(turn: Turn, envelope: Event, digest: bytes) -> None:
    """Drop an envelope that came before; with another content it is a dead letter."""
    if digest == envelope.digest:
        turn.duplicates += 1
        return
    turn.dead_letter(envelope.record, DeadLetterReason.CONFLICTING_DUPLICATE, envelope.CONFLICT.format(id=envelope.event_id))


def _queue(turn: Turn, envelope: Event) -> None:
    """Queue an arrived envelope of any kind behind the remainder, and store it."""
    unit, entry = turn.unit, _with_learned_wait(turn, entry_of(envelope, "", 0, turn.now))
    turn.is_changed = True
    unit.amend(remainder=unit.remainder or Remainder(), queue=(*unit.queue, entry))
    turn.note_stashed(entry)


def _take_queued(turn: Turn) -> None:
    """Take the queued envelopes in order of arrival, until one leaves a remainder or the turn's output budget is used up."""
    unit, queue, taken = turn.unit, turn.unit.queue, 0
    while taken < len(queue) and unit.remainder is None and not turn.is_spent:
        first = queue[taken]
        taken += 1
        turn.current = first.envelope
        _take(turn, first.envelope, first)
    rest = queue[taken:]
    unit.amend(queue=rest, remainder=unit.remainder or (Remainder() if rest else None))


def _stash(turn: Turn, entry: Entry, *, is_new: bool) -> None:
    """Stash an envelope that came in this turn (`is_new`), or was queued."""
    unit, settings = turn.unit, turn.context.settings
    turn.stashed += 1
    if is_new:
        if settings.learned is not None:
            entry = _with_learned_wait(turn, entry)
        turn.note_stashed(entry)
    unit.add(entry)
    turn.has_gathered = False
    if unit.rare is None and len(unit.stash) <= settings.stash_limit and unit.stashed_bytes <= settings.stash_bytes:
        return
    if is_beyond_bound(turn):
        # Nothing can be handled before a head under retry. So it is tried at once, unless it waits for a server or its handler.
        if not unit.waits_outside:
            try_again(turn, is_early=True)
            if unit.is_called:
                return
        keep_bound(turn)


def _with_learned_wait(turn: Turn, entry: Entry) -> Entry:
    wait_ms = find_learned_wait_ms(entry.envelope, turn.context)
    return entry if wait_ms is None else replace(entry, learned_wait_ms=wait_ms)
