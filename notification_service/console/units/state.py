"""What a unit's stored state says, in words and numbers. Pure, and without payment data."""

from collections.abc import Iterator

import msgspec

from notification_service.console.units.story import Attempts, DataObject, FlowState, StashedEnvelope, UnitState, Wait
from resequencer.clock import Instant, instant_text
from resequencer.envelope import PAIN_001_PARTS, DataEnvelope
from resequencer.payment_data import PaymentData
from resequencer.storage_port import Waits
from resequencer.strategies.completeness import Seen
from resequencer.strategies.port import Strategy
from resequencer.strategies.sequence import Expectation, LastPerFlow, Lasts, handled_to
from resequencer.unit import REMEMBERED_ENVELOPES, Entry, Remainder, Retry, Undecodable, Unit

_MAX_INTERVALS = 10


def wait_of(waits: Waits) -> Wait:
    since, until = instant_text(waits.since), instant_text(waits.wakes_at)
    return Wait(waits.shown_waits_for, waits.kind.value, since, until, waits.stashed, waits.stashed_bytes)


def state_of(unit: Unit, strategy: Strategy) -> UnitState:
    return UnitState(
        strategy.name,
        unit.handled_count,
        unit.handled_count >= REMEMBERED_ENVELOPES,
        tuple(_facts(unit, strategy)),
        tuple(_flows(unit.state)),
        tuple(_stash(unit)),
        None if unit.retry is None else _attempts(unit.retry),
        tuple(_payment_data(unit.data)),
    )


def _facts(unit: Unit, strategy: Strategy) -> Iterator[tuple[str, str]]:
    state = unit.state
    if isinstance(state, Expectation):
        yield "Next sequence expected", str(state.expected)
        if state.given_up:
            yield "Skipped", _given_up(state.given_up)
    elif isinstance(state, Seen):
        yield "Parts seen", ", ".join(state.parts) or "none"
        missing = _missing(unit, strategy)
        yield "Parts missing", missing or "none"
    elif not isinstance(state, Lasts):
        yield "State of the strategy", _in_words(state)
    if unit.hold is not None:
        order = unit.hold.order
        held = f"by {order.by} since {instant_text(unit.hold.began_at)} until {instant_text(unit.hold.until)}: {order.because}"
        yield "Held", held
    if unit.remainder is not None:
        yield "Remainder", _remainder(unit.remainder, len(unit.queue))


def _missing(unit: Unit, strategy: Strategy) -> str:
    """Return what is missing in the unit. These strategies look at no envelope for it, but expect one."""
    held = next(iter(unit.stash), None) or (unit.retry.entry if unit.retry else None)
    if held is not None:
        return strategy.missing(unit.state, held.envelope)
    return ", ".join(each for each in PAIN_001_PARTS if each not in unit.state.parts)


def _given_up(intervals: tuple[tuple[int, int], ...]) -> str:
    is_one = len(intervals) == 1 and intervals[0][0] == intervals[0][1]
    return f"the {'number' if is_one else 'numbers'} {_intervals(intervals)} {'was' if is_one else 'were'} given up"


def _intervals(intervals: tuple[tuple[int, int], ...]) -> str:
    last = intervals[-_MAX_INTERVALS:]
    texts = [str(low) if low == high else f"{low} to {high}" for low, high in last]
    return ", ".join([*(["…"] if len(last) < len(intervals) else []), *texts])


def _in_words(state: object) -> str:
    try:
        return msgspec.json.encode(state).decode()
    except (TypeError, ValueError):
        return repr(state)


def _remainder(left: Remainder, queued: int) -> str:
    why = "a release goes on" if left.cause is not None else "the last turn had used up its share"
    return f"{why} in the next turn; {queued} envelopes that came meanwhile are queued behind it"


def _flows(state: object) -> Iterator[FlowState]:
    if isinstance(state, Expectation | Lasts):
        observed: LastPerFlow = state.observed
        for flow, last in sorted(observed):
            yield FlowState(flow, last, handled_to(observed, state.dead_ends, flow))


def _stash(unit: Unit) -> Iterator[StashedEnvelope]:
    """Yield all envelopes that wait: by sequence, then those without one in the order of arrival."""
    waiting = [(each.envelope.offset, _stashed(each)) for each in unit.stash]
    waiting += [(each.envelope.offset, _stashed(each, is_queued=True)) for each in unit.queue]
    waiting += [(each.record.origin.offset, _undecodable(each)) for each in unit.undecodable]
    if unit.retry is not None:
        waiting.append((unit.retry.entry.envelope.offset, _stashed(unit.retry.entry)))
    yield from (told for _, told in sorted(waiting, key=_place))


def _place(waiting: tuple[int, StashedEnvelope]) -> tuple[bool, int, int]:
    offset, told = waiting
    return told.sequence is None, told.sequence or 0, offset


def _stashed(stashed: Entry, *, is_queued: bool = False) -> StashedEnvelope:
    envelope = stashed.envelope
    return StashedEnvelope(
        str(envelope.record.origin),
        envelope.sequence,
        envelope.flow,
        instant_text(stashed.stashed_at),
        tuple(each.event_name or each.object_type or "unnamed" for each in envelope.process_objects),
        tuple(_objects(envelope)),
        envelope.record.size,
        is_queued,
    )


def _undecodable(each: Undecodable) -> StashedEnvelope:
    defect = f"{each.reason.value}: {each.error}"
    return StashedEnvelope(str(each.record.origin), None, "", None, (), (), each.record.size, defect=defect)


def _objects(envelope: DataEnvelope) -> Iterator[str]:
    yield from (each.object_type for each in envelope.mds_objects)
    yield from (f"pdsData:{each.name}" for each in envelope.pds_objects)
    yield from (f"customData:{each.key}" for each in envelope.custom_objects)


def _attempts(retry: Retry) -> Attempts:
    due_at: Instant = retry.due_at
    position = str(retry.entry.envelope.record.origin)
    return Attempts(position, retry.attempts, instant_text(due_at), retry.why, retry.dependency, retry.calls, retry.incomplete)


def _payment_data(data: PaymentData) -> Iterator[DataObject]:
    for kind, bodies in (("mds", data.mds), ("pds", data.pds), ("custom", data.custom)):
        yield from (DataObject(kind, name, len(body)) for name, body in bodies)
