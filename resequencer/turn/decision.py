"""The decision of a turn: what the storage has to store and what the guardian has to know."""

from resequencer.turn.hold import deadline_at
from resequencer.turn.working_copy import WorkingCopy
from resequencer.unit import Decision, Hold, Retry, Unit
from resequencer.unit_codec import encode_data, encode_entry, encode_state
from storage.port import UnitChange, WaitKind, Waits


def decision_of(copy: WorkingCopy, after: Unit) -> Decision:
    """Return the decision of a turn; `after` is the unit after the turn."""
    effects, waits = copy.effects, find_waits(copy)
    return Decision(
        _change(copy, after, waits) if copy.is_changed else None,
        tuple(effects.output),
        waits,
        tuple(effects.releases),
        effects.tally,
        tuple(effects.added),
        tuple(effects.removed),
        effects.let_out,
        copy.data.size,
        tuple(effects.waited_ms),
        tuple(effects.written_at),
    )


def _change(copy: WorkingCopy, after: Unit, waits: Waits | None) -> UnitChange:
    return UnitChange(
        after.unit,
        encode_state(after, copy.strategy),
        waits,
        tuple([encode_entry(each) for each in copy.effects.added.values()]),
        tuple(copy.effects.removed),
        None if copy.data is copy.before.data else encode_data(copy.data),
    )


def find_waits(copy: WorkingCopy) -> Waits | None:
    """Return when the unit has to be woken and for what. Its deadline is suspended while the head is under retry, or a hold."""
    if copy.remainder is not None or copy.undecodable:
        return _waits_for_its_turn(copy)
    if copy.hold is not None:
        return _waits_for_end(copy, copy.hold)
    if copy.retry is not None:
        return _waits_for_attempt(copy, copy.retry)
    stash = copy.stash
    oldest, lowest = stash.oldest, stash.lowest
    if oldest is None or lowest is None:
        return None
    wakes_at, waits_for = deadline_at(copy, oldest), copy.missing(lowest)
    return Waits(wakes_at, WaitKind.DEADLINE, oldest.stashed_at, waits_for, copy.strategy.name, len(stash), stash.size)


def _waits_for_end(copy: WorkingCopy, hold: Hold) -> Waits:
    heads = () if copy.retry is None else (copy.retry.entry,)
    since = min([each.stashed_at for each in (*heads, copy.stash.oldest) if each is not None], default=hold.began_at)
    size = sum([each.size for each in (*heads, copy.stash)])
    waits_for = f"the end of the hold by {hold.order.by}"
    return Waits(hold.until, WaitKind.HELD, since, waits_for, copy.strategy.name, len(copy.stash) + len(heads), size)


def _waits_for_its_turn(copy: WorkingCopy) -> Waits:
    """Return a wait that is due at once: a remainder waits for its next turn only."""
    heads = () if copy.retry is None else (copy.retry.entry,)
    oldest = [each for each in (*heads, copy.stash.oldest, copy.queue.oldest) if each is not None]
    since = min([each.stashed_at for each in oldest], default=copy.now)
    stashed = len(heads) + len(copy.stash) + len(copy.queue)
    size = sum([each.size for each in (*heads, copy.stash, copy.queue)])
    return Waits(copy.now, WaitKind.REMAINDER, since, "its turn to leave", copy.strategy.name, stashed, size)


def _waits_for_attempt(copy: WorkingCopy, retry: Retry) -> Waits:
    stash = copy.stash
    since = min(each.stashed_at for each in (retry.entry, stash.oldest) if each is not None)
    kind, waits_for = WaitKind.RETRY, f"attempt {retry.attempts + 1} of {copy.context.settings.max_attempts}"
    if retry.why is not None:
        waits_for = f"{waits_for}, after {retry.why}"
    if retry.dependency is not None:
        kind, waits_for = WaitKind.DEPENDENCY, retry.dependency
    stashed, size = len(stash) + 1, stash.size + retry.entry.size
    return Waits(retry.due_at, kind, since, waits_for, copy.strategy.name, stashed, size)
