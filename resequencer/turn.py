"""One turn of a unit of work: what arrived is handled or stashed, what waited is taken up again. Pure: time is handed in."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from domain.clock import Instant
from domain.envelope import DataEnvelope
from domain.errors import PermanentError
from resequencer.attempt import attempt
from resequencer.deadline import find_learned_wait_ms
from resequencer.duplicates import find_known, refuse_known
from resequencer.gathering import gather_with
from resequencer.outcome import decision_of
from resequencer.release import go_on, is_beyond_bound, keep_bound, release
from resequencer.rules import Rules
from resequencer.stash import Stashed
from resequencer.unit import Decision, Unit, Wake
from resequencer.unstash import unstash
from resequencer.working_copy import WorkingCopy


class Turned(NamedTuple):
    """The unit as it is now, and what is to be done."""

    unit: Unit
    decision: Decision


def decide(unit: Unit, envelopes: Iterable[DataEnvelope], wakes: Iterable[Wake], now: Instant, rules: Rules) -> Turned:
    """The turn of a unit to which these envelopes came (in order of arrival), and then these wakes.

    A wake may be early or doubled: nothing happens then. A deadline is due only when everything that lay in the partition
    at its instant has been read; whoever wakes the unit knows that.
    """
    return take_turn(WorkingCopy(unit, rules, now), envelopes, wakes)


def take_turn(copy: WorkingCopy, envelopes: Iterable[DataEnvelope], wakes: Iterable[Wake]) -> Turned:
    """The turn on its working copy."""
    for envelope in envelopes:
        copy.in_hand = envelope
        receive(copy, envelope)
    copy.in_hand = None
    for each in wakes:
        wake(copy, each)
    after = copy.unit()
    return Turned(after, decision_of(copy, after))


def receive(copy: WorkingCopy, envelope: DataEnvelope) -> None:
    """Tell duplicates first, before anything counts; then handle or stash."""
    copy.effects.arrive(envelope.offset)
    known = find_known(copy, envelope)
    if known is not None:
        refuse_known(copy, envelope, known)
        return
    copy.is_changed = True
    try:
        copy.data.refuse_too_much(envelope, copy.rules.settings.stash_bytes)
        copy.state = copy.strategy.observe(copy.state, envelope)
        entry = Stashed(envelope, copy.strategy.rank(envelope), copy.now)
        accepts = copy.is_free and copy.strategy.accepts(copy.state, envelope)
    except PermanentError as error:
        copy.effects.bury(envelope.record, error.reason, str(error))
        return
    if accepts:
        gather_with(copy, envelope)
        attempt(copy, entry)
        unstash(copy, entry.rank.lane)
    else:
        _stash(copy, entry)


def wake(copy: WorkingCopy, kind: Wake) -> None:
    if kind is Wake.RETRY:
        _try_again(copy)
    else:
        release(copy, kind)


def _stash(copy: WorkingCopy, entry: Stashed) -> None:
    copy.effects.count("stashed")
    wait_ms = find_learned_wait_ms(entry.envelope, copy.rules)
    entry = entry if wait_ms is None else msgspec.structs.replace(entry, learned_wait_ms=wait_ms)
    copy.stash = copy.stash.add(entry)
    copy.has_gathered = False
    copy.effects.stash(entry)
    if is_beyond_bound(copy):
        # Nothing can be handled before a head that is under retry: it is waited for no longer, unless a try would be in vain.
        if copy.dependency is None:
            _try_again(copy, is_early=True)
        keep_bound(copy)


def _try_again(copy: WorkingCopy, *, is_early: bool = False) -> None:
    retry = copy.retry
    if retry is None or (retry.due_at > copy.now and not is_early):
        return
    copy.is_changed = True
    copy.tried, copy.retry = retry, None
    copy.incomplete, copy.released_to = retry.incomplete, retry.released_to
    if retry.is_forced:
        go_on(copy, retry.entry)
    else:
        attempt(copy, retry.entry)
        unstash(copy, retry.entry.rank.lane)
    copy.incomplete = None
    for lane in copy.stash.names:
        unstash(copy, lane)
    keep_bound(copy)
