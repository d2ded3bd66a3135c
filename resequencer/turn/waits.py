"""What a unit waits for, and until when; and the hold by an operator's order, during which its deadline rests."""

from msgspec.structs import replace

from resequencer.clock import SKEW_MS, Instant
from resequencer.event import Event
from resequencer.order import LONGEST_HOLD_MS, OrderOutcome, OrderResult
from resequencer.settings import ResequencerSettings
from resequencer.storage_port import WaitKind, Waits
from resequencer.turn.turn import Turn, TurnContext
from resequencer.unit import Entry, Hold, Ordered, Retry

_DEADLINE = WaitKind.DEADLINE

_ENDINGS = {
    OrderResult.HELD_TO_ITS_END: "the hold is over: its time has passed",
    OrderResult.HELD_UNTIL_RESUMED: "the hold is over: another order resumed the unit",
    OrderResult.HELD_UNTIL_BOUND: "the hold is over: the stash reached its limit (stash-limit)",
}


def find_waits(turn: Turn) -> Waits | None:
    """Return when the unit has to be woken and for what. Its deadline is suspended while the head is under retry, in a hold, and
    while an order waits.
    """
    unit, ordered = turn.unit, None
    if unit.rare is not None:
        ordered = unit.rare.waiting_order
        if unit.rare.remainder is not None or unit.rare.undecodable:
            return _waits_for_its_turn(turn)
        if unit.rare.hold is not None:
            return _waits_for_end(turn, unit.rare.hold)
        if unit.rare.retry is not None:
            return _waits_for_attempt(turn, unit.rare.retry)
    oldest, lowest = unit.oldest, turn.context.find_lowest(unit)
    if oldest is None or lowest is None:
        return None
    until, waits_for, strategy = deadline_at(turn, oldest), turn.missing(lowest), turn.strategy.name
    kind = _DEADLINE
    if ordered is not None and ordered.until is not None:
        until, kind = ordered.until, WaitKind.ORDERED
    return Waits(until, kind, oldest.stashed_at, waits_for, strategy, len(unit.stash), unit.stashed_bytes)


def find_learned_wait_ms(envelope: Event, context: TurnContext) -> int | None:
    """Return the learned wait of an envelope, in milliseconds; None if only the configuration determines the wait.

    The wait is stored with the envelope when it is stashed. A new release of the lookups changes only envelopes stashed later.
    """
    learned, profiles = context.settings.learned, context.profiles
    if learned is None:
        return None
    lateness_ms = None if profiles is None else profiles.find_lateness_ms(envelope.entity, envelope.flow)
    return context.settings.deadline_ms if lateness_ms is None else learned.within(lateness_ms)


def deadline_of(oldest: Entry, settings: ResequencerSettings) -> Instant:
    """Return the deadline of a unit from the oldest envelope of its stash. Today's bounds apply also to waits learned before."""
    return oldest.stashed_at + whole_wait_ms(oldest, settings)


def whole_wait_ms(oldest: Entry, settings: ResequencerSettings) -> int:
    """Return how long an envelope waits from its stashing to its deadline."""
    if settings.learned is None or oldest.learned_wait_ms is None:
        return settings.deadline_ms
    return settings.learned.within(oldest.learned_wait_ms)


def deadline_at(turn: Turn, oldest: Entry) -> Instant:
    """Return the unit's deadline: the one that an order set, or that of its oldest stashed envelope."""
    ordered = turn.unit.deadline_at
    return deadline_of(oldest, turn.context.settings) if ordered is None else ordered


def mend_deadline(turn: Turn, oldest: Entry) -> None:
    """Set a deadline again that an order set by a clock that was ahead: what waits has its whole wait from now on.

    If the stash has a time in the future too, the guardian has corrected both.
    """
    settings, ordered = turn.context.settings, turn.unit.deadline_at
    if ordered is None or oldest.stashed_at > turn.now:
        return
    if ordered > turn.now + max(LONGEST_HOLD_MS, settings.longest_deadline_ms) + SKEW_MS:
        turn.unit.amend(deadline_at=turn.now + whole_wait_ms(oldest, settings))
        turn.is_changed = True


def begin_hold(turn: Turn, ordered: Ordered, for_ms: int) -> None:
    """Handle nothing of the unit for this time. Its deadline rests, and no outcome is published before the end."""
    oldest, remaining_ms = turn.unit.oldest, None
    if oldest is not None and turn.unit.retry is None:
        remaining_ms = _possible_ms(turn, oldest, max(0, deadline_at(turn, oldest) - turn.now))
    turn.unit.amend(hold=Hold(ordered.order, ordered.order_offset, turn.now, turn.now + for_ms, remaining_ms))
    turn.is_changed = True


def end_hold(turn: Turn, result: OrderResult) -> None:
    """End the hold and report how. The deadline has as much time as it had when the hold began.

    What became acceptable meanwhile is not handled here.
    """
    unit, hold, oldest = turn.unit, turn.unit.hold, turn.unit.oldest
    assert hold is not None, "only a held unit is asked to end its hold"
    turn.is_changed = True
    unit.amend(hold=None)
    if unit.retry is not None and unit.is_called:  # Its call is made again: it begins now.
        unit.amend(retry=replace(unit.retry, due_at=turn.now))
    elif oldest is not None and unit.retry is None:
        whole_ms = whole_wait_ms(oldest, turn.context.settings)
        remaining_ms = whole_ms if hold.remaining_ms is None else _possible_ms(turn, oldest, hold.remaining_ms)
        unit.amend(deadline_at=turn.now + remaining_ms)
    turn.report(OrderOutcome(order=hold.order, order_offset=hold.order_offset, result=result, text=_ENDINGS[result], at=turn.now))


def _waits_for_its_turn(turn: Turn) -> Waits:
    """Return a wait that is due at once: a remainder waits for its next turn only."""
    unit, queue = turn.unit, turn.unit.queue
    heads = () if unit.retry is None else (unit.retry.entry,)
    oldest = [each for each in (*heads, unit.oldest, *queue[:1]) if each is not None]
    since = min([each.stashed_at for each in oldest], default=turn.now)
    size = unit.stashed_bytes + sum([each.size for each in (*heads, *queue)])
    stashed = len(heads) + len(unit.stash) + len(queue)
    return Waits(turn.now, WaitKind.REMAINDER, since, "its turn to leave", turn.strategy.name, stashed, size)


def _waits_for_end(turn: Turn, hold: Hold) -> Waits:
    unit = turn.unit
    heads = () if unit.retry is None else (unit.retry.entry,)
    since = min([each.stashed_at for each in (*heads, unit.oldest) if each is not None], default=hold.began_at)
    size = unit.stashed_bytes + sum([each.size for each in heads])
    waits_for = f"the end of the hold by {hold.order.by}"
    return Waits(hold.until, WaitKind.HELD, since, waits_for, turn.strategy.name, len(unit.stash) + len(heads), size)


def _waits_for_attempt(turn: Turn, retry: Retry) -> Waits:
    unit = turn.unit
    since = min(each.stashed_at for each in (retry.entry, unit.oldest) if each is not None)
    kind, waits_for = WaitKind.RETRY, f"attempt {retry.attempts + 1} of {turn.context.settings.max_attempts}"
    if retry.is_called:
        kind, waits_for = WaitKind.CALL, f"its handler, {waits_for}"
    elif retry.why is not None:
        waits_for = f"{waits_for}, after {retry.why}"
    if retry.dependency is not None and not retry.is_called:
        kind, waits_for = WaitKind.DEPENDENCY, retry.dependency
    size = unit.stashed_bytes + retry.entry.size
    return Waits(retry.due_at, kind, since, waits_for, turn.strategy.name, len(unit.stash) + 1, size)


def _possible_ms(turn: Turn, oldest: Entry, remaining_ms: int) -> int:
    """Return what can be left until a deadline: a clock that was behind when the hold began tells more."""
    whole_ms = whole_wait_ms(oldest, turn.context.settings)
    return min(remaining_ms, whole_ms if turn.unit.deadline_at is None else max(LONGEST_HOLD_MS, whole_ms))
