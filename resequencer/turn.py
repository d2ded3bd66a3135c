"""One turn of a unit of work: what arrived is handled or stashed, what waited is taken up again. Pure: time is handed in."""

from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError
from resequencer.deadline import find_learned_wait_ms
from resequencer.decision import decision_of
from resequencer.duplicates import find_known, refuse_known
from resequencer.gathering import gather_with
from resequencer.handling import attempt
from resequencer.release import go_on, is_beyond_bound, keep_bound, release, release_stash
from resequencer.stash import UNRANKED, Stashed
from resequencer.turn_context import TurnContext
from resequencer.unit import Decision, Remainder, Unit, Wake
from resequencer.unstash import unstash
from resequencer.working_copy import WITHOUT_END, WorkingCopy


class Turned(NamedTuple):
    """The unit as it is now, and what is to be done."""

    unit: Unit
    decision: Decision


def decide(
    unit: Unit,
    envelopes: Iterable[DataEnvelope],
    wakes: Iterable[Wake],
    now: Instant,
    context: TurnContext,
    share: int = WITHOUT_END,
) -> Turned:
    """The turn of a unit to which these envelopes came (in order of arrival), and then these wakes.

    A wake may be early or doubled: nothing happens then. A deadline is due only when everything that lay in the partition
    at its instant has been read; whoever wakes the unit knows that. Once about `share` bytes have left nothing more does: what
    is left over comes first in the next turn, and what arrives behind it waits.
    """
    return take_turn(WorkingCopy(unit, context, now, share), envelopes, wakes)


def take_turn(copy: WorkingCopy, envelopes: Iterable[DataEnvelope], wakes: Iterable[Wake]) -> Turned:
    """The turn on its working copy."""
    resume(copy)
    for envelope in envelopes:
        copy.current = envelope
        receive(copy, envelope)
    copy.current = None
    for each in wakes:
        wake(copy, each)
    after = copy.unit()
    return Turned(after, decision_of(copy, after))


def resume(copy: WorkingCopy) -> None:
    """What an earlier turn left over comes first: it goes on where it was cut off, then with what arrived since."""
    left = copy.remainder
    if left is None or copy.is_spent:
        return
    copy.is_changed, copy.remainder = True, None
    copy.incomplete, copy.released_to = left.incomplete, left.released_to
    if left.is_retrying and copy.retry is not None:
        copy.tried, copy.retry = copy.retry, None
        go_on(copy, copy.tried.entry)
    elif left.lane is not None:
        unstash(copy, left.lane)
    if left.cause is not None:
        release_stash(copy, left.cause, is_rest=True)
    _unstash_all(copy)
    _take_queued(copy)


def receive(copy: WorkingCopy, envelope: DataEnvelope) -> None:
    """What arrives is taken in its turn: behind what was left over."""
    copy.effects.arrive(envelope.offset)
    if copy.remainder is None and not copy.is_spent:
        _take(copy, envelope)
    else:
        _queue(copy, Stashed(envelope, UNRANKED, copy.now))


def wake(copy: WorkingCopy, kind: Wake) -> None:
    """Of a turn that has let out its share nothing more: the unit says itself when it wants to be woken again."""
    if copy.is_spent:
        return
    if kind is Wake.RETRY:
        _try_again(copy)
    elif kind is not Wake.REMAINDER:
        release(copy, kind)


def _take(copy: WorkingCopy, envelope: DataEnvelope, queued: Stashed | None = None) -> None:
    """Tell duplicates first, before anything counts; then handle or stash. What was `queued` came when that says."""
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
    """It waits for what was left over, whatever it is; the storage has to know."""
    arrived = _with_learned_wait(copy, arrived)
    copy.is_changed = True
    copy.remainder = copy.remainder or Remainder()
    copy.queue = copy.queue.add(arrived)
    copy.effects.stash(arrived)


def _take_queued(copy: WorkingCopy) -> None:
    """In the order of arrival, until one of them leaves something over, or the turn has let out its share."""
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
        # Nothing can be handled before a head that is under retry: it is waited for no longer, unless a try would be in vain.
        if copy.dependency is None:
            _try_again(copy, is_early=True)
        keep_bound(copy)


def _with_learned_wait(copy: WorkingCopy, entry: Stashed) -> Stashed:
    wait_ms = find_learned_wait_ms(entry.envelope, copy.context)
    return entry if wait_ms is None else replace(entry, learned_wait_ms=wait_ms)


def _try_again(copy: WorkingCopy, *, is_early: bool = False) -> None:
    retry = copy.retry
    if retry is None or (0 < retry.due_at - copy.now <= copy.context.settings.longest_pause_ms and not is_early):
        return
    copy.is_changed = True
    copy.tried, copy.retry = retry, None
    copy.incomplete, copy.released_to = retry.incomplete, retry.released_to
    if retry.is_forced:
        copy.incomplete = None
        go_on(copy, retry.entry)
    else:
        attempt(copy, retry.entry)
        unstash(copy, retry.entry.rank.lane)
    _unstash_all(copy)


def _unstash_all(copy: WorkingCopy) -> None:
    """What came while nothing could be handled may have become acceptable, and too much."""
    copy.incomplete, copy.released_to = None, -1
    for lane in copy.stash.names:
        unstash(copy, lane)
    keep_bound(copy)
