"""One turn of a unit of work: handle or stash the arrivals, then handle stashed envelopes that are acceptable now.

Pure: the caller passes the time.
"""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError
from resequencer.stash import UNRANKED, Stashed
from resequencer.turn.context import TurnContext
from resequencer.turn.deadline import find_learned_wait_ms
from resequencer.turn.decision import decision_of
from resequencer.turn.duplicates import find_known, refuse_known
from resequencer.turn.gathering import gather_with
from resequencer.turn.handling import attempt
from resequencer.turn.next_attempt import try_again, unstash_all
from resequencer.turn.orders import end_hold_in_time, obey
from resequencer.turn.release import go_on, is_beyond_bound, keep_bound, release, release_stash
from resequencer.turn.unstash import unstash
from resequencer.turn.working_copy import WITHOUT_END, WorkingCopy
from resequencer.unit import Decision, Ordered, Remainder, Unit, Wake


class Turned(NamedTuple):
    """The unit after the turn, and the decision."""

    unit: Unit
    decision: Decision


def decide(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    wakes: Iterable[Wake],
    now: Instant,
    context: TurnContext,
    share: int = WITHOUT_END,
    orders: Iterable[Ordered] = (),
) -> Turned:
    """Take the turn of a unit with these envelopes, in order of arrival, then these orders, and then these wakes.

    A wake may be early or doubled; it then has no effect. The caller sends a deadline only when the partition has been read up to
    where its log ended at that instant. The turn stops after about `share` bytes of output. The remainder comes first in the next
    turn, and later arrivals wait behind it.
    """
    return take_turn(WorkingCopy(unit, context, now, share), envelopes, wakes, orders)


def take_turn(
    copy: WorkingCopy, envelopes: Iterable[DataEnvelope], wakes: Iterable[Wake], orders: Iterable[Ordered] = ()
) -> Turned:
    """Take the turn on a working copy."""
    resume(copy)
    for envelope in envelopes:
        copy.current = envelope
        receive(copy, envelope)
    copy.current = None
    for ordered in orders:
        obey(copy, ordered)
    for each in wakes:
        wake(copy, each)
    after = copy.unit()
    return Turned(after, decision_of(copy, after))


def resume(copy: WorkingCopy) -> None:
    """Continue the remainder of an earlier turn where it was cut off, then take the queued envelopes."""
    left = copy.remainder
    if left is None or copy.is_spent:
        return
    copy.is_changed, copy.remainder = True, None
    copy.incomplete, copy.released_to, copy.is_ordered = left.incomplete, left.released_to, left.is_ordered
    if left.is_retrying and copy.retry is not None:
        copy.tried, copy.retry = copy.retry, None
        go_on(copy, copy.tried.entry)
    elif left.lane is not None:
        unstash(copy, left.lane)
    if left.cause is not None:
        release_stash(copy, left.cause, is_rest=True)
    unstash_all(copy)
    _take_queued(copy)


def receive(copy: WorkingCopy, envelope: DataEnvelope) -> None:
    """Take an arrived envelope, or queue it if there is a remainder or the turn's share is used up."""
    copy.effects.arrive(envelope.offset)
    if copy.remainder is None and not copy.is_spent:
        _take(copy, envelope)
    else:
        _queue(copy, Stashed(envelope, UNRANKED, copy.now))


def wake(copy: WorkingCopy, kind: Wake) -> None:
    """Wake the unit. No effect if the turn's share is used up: the decision then asks for the next wake."""
    if copy.is_spent:
        return
    if kind is Wake.RETRY:
        try_again(copy)
    elif kind is Wake.HOLD_OVER:
        end_hold_in_time(copy)
    elif kind is not Wake.REMAINDER:
        release(copy, kind)


def _take(copy: WorkingCopy, envelope: DataEnvelope, queued: Stashed | None = None) -> None:
    """Check for a duplicate first, before anything is counted; then handle or stash the envelope.

    `queued` is its queue entry, which has the time of its arrival.
    """
    known = find_known(copy, envelope)
    if known is not None:
        refuse_known(copy, envelope, known)
        _leave(copy, queued)
        return
    copy.is_changed = True
    try:
        copy.data.refuse_too_much(envelope, copy.context.settings.stash_bytes)
        copy.state = copy.strategy.observe(copy.state, envelope)
        rank = copy.strategy.rank(envelope)
        accepts = copy.is_free and copy.strategy.accepts(copy.state, envelope)
    except PermanentError as error:
        copy.effects.dead_letter(envelope.record, error.reason, str(error))
        _leave(copy, queued)
        return
    if queued is None:
        entry = Stashed(envelope, rank, copy.now)
    else:
        entry = Stashed(envelope, rank, queued.stashed_at, queued.learned_wait_ms)
    if accepts:
        gather_with(copy, envelope)
        attempt(copy, entry)
        unstash(copy, entry.rank.lane)
    else:
        _stash(copy, entry)


def _leave(copy: WorkingCopy, queued: Stashed | None) -> None:
    if queued is not None:
        copy.effects.leave(queued)


def _queue(copy: WorkingCopy, arrived: Stashed) -> None:
    """Queue an arrived envelope of any kind behind the remainder, and store it."""
    arrived = _with_learned_wait(copy, arrived)
    copy.is_changed = True
    copy.remainder = copy.remainder or Remainder()
    copy.queue = copy.queue.add(arrived)
    copy.effects.stash(arrived)


def _take_queued(copy: WorkingCopy) -> None:
    """Take the queued envelopes in order of arrival, until one leaves a remainder or the turn's share is used up."""
    while copy.remainder is None and not copy.is_spent and (first := copy.queue.lowest) is not None:
        copy.queue = copy.queue.without(first)
        copy.current = first.envelope
        _take(copy, first.envelope, first)
    if len(copy.queue) and copy.remainder is None:
        copy.remainder = Remainder()


def _stash(copy: WorkingCopy, entry: Stashed) -> None:
    copy.effects.count("stashed")
    if copy.effects.has_arrived(entry):
        entry = _with_learned_wait(copy, entry)
    copy.stash = copy.stash.add(entry)
    copy.has_gathered = False
    copy.effects.stash(entry)
    if is_beyond_bound(copy):
        # Nothing can be handled before a head under retry. So it is tried at once, unless its server is unavailable.
        if copy.dependency is None:
            try_again(copy, is_early=True)
        keep_bound(copy)


def _with_learned_wait(copy: WorkingCopy, entry: Stashed) -> Stashed:
    wait_ms = find_learned_wait_ms(entry.envelope, copy.context)
    return entry if wait_ms is None else replace(entry, learned_wait_ms=wait_ms)
