"""The story of a unit of work: everything that is known of it here, in words and numbers. Pure, and without payment data."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from guardian.headers import INCOMPLETE
from notification_service.console.orders import OrderState, ToldOrder
from notification_service.events.own_data import opened
from notification_service.payments.envelope import PAIN_001, DataEnvelope
from notification_service.payments.payment_data import PaymentData
from resequencer.clock import Instant, instant_of, instant_text
from resequencer.event import Event
from resequencer.record import Origin
from resequencer.storage_port import Waits
from resequencer.strategies.completeness import Completeness, Seen
from resequencer.strategies.port import Strategy
from resequencer.strategies.previous import Links
from resequencer.strategies.sequence import Expectation, LastPerFlow, Lasts, handled_to
from resequencer.strategies.window import Released
from resequencer.unit import REMEMBERED_ENVELOPES, Entry, Ordered, Remainder, Retry, Undecodable, Unit


class Wait(msgspec.Struct, frozen=True):
    """What the unit waits for, as the storage's index has it. `kind` says what happens at `until`: a deadline or an attempt.

    Of kind `call`, `until` is since when its handler is called; of `ordered`, until when its order waits for unread records.
    """

    waits_for: str
    kind: str
    since: str
    until: str
    stashed: int
    stashed_bytes: int


class Holder(msgspec.Struct, frozen=True):
    """The worker that has the unit's partition, as this machine's service reports it."""

    slot: int
    process_id: int | None


class StashedEnvelope(msgspec.Struct, frozen=True):
    """An envelope that waits. `objects` are the names of the payment data that it brings, without their content.

    A record that today's configuration cannot decode has a `defect`, and becomes a dead letter at the unit's next turn.
    """

    position: str
    sequence: int | None
    flow: str
    stashed_at: str | None
    events: tuple[str, ...]
    objects: tuple[str, ...]
    record_bytes: int
    is_queued: bool = False
    defect: str | None = None


class Attempts(msgspec.Struct, frozen=True):
    """The envelope that is tried again. With a `dependency` the unit waits for that server: `calls` found it unavailable."""

    position: str
    made: int
    due_at: str
    why: str | None
    dependency: str | None
    calls: int
    incomplete: str | None


class FlowState(msgspec.Struct, frozen=True):
    """The numbers of a flow that the strategy knows. `handled_to` is lower than `counted_to` if it ends in dead letters."""

    flow: str
    counted_to: int
    handled_to: int


class DataObject(msgspec.Struct, frozen=True):
    """An object of the payment data, without its content. `kind` is `mds`, `pds` or `custom`."""

    kind: str
    name: str
    size_bytes: int


class UnitState(msgspec.Struct, frozen=True):
    """What the unit remembers. `facts` are what the strategy and the last turn say in words.

    `handled` counts the envelopes whose ids are remembered: the last 1,024 at most. `flows` is empty without sequence numbers.
    """

    strategy: str
    handled: int
    is_handled_bounded: bool
    facts: tuple[tuple[str, str], ...]
    flows: tuple[FlowState, ...]
    stash: tuple[StashedEnvelope, ...]
    attempts: Attempts | None
    payment_data: tuple[DataObject, ...]


class UnitDeadLetter(msgspec.Struct, frozen=True):
    """A dead letter of the unit; `state` is that of the last action on it."""

    number: str
    at: str
    reason: str
    error: str
    position: str
    state: str


class DeadLetters(msgspec.Struct, frozen=True):
    """The unit's dead letters that were found. `searched` says in words what was read; if not all, `is_complete` is false."""

    found: tuple[UnitDeadLetter, ...]
    is_complete: bool
    searched: str


class LeftNotification(msgspec.Struct, frozen=True):
    """A notification that was sent. `marks` are those of docs/contract.md, section 6, each with its value.

    `status` has the codes of `GrpSts`, `PmtInfSts` and `TxSts` of a report in JSON, each once, in the order of the report. It is
    None if there are none, or the notification is of another target type.

    `sent_to` is its own position in the topic of notifications, where that is known, `group` the message that the unit is of.
    """

    notification_id: str
    event: str
    flow: str
    position: str
    marks: tuple[str, ...]
    created_at: str | None = None
    status: str | None = None
    sent_to: str | None = None
    group: str | None = None


class Left(msgspec.Struct, frozen=True):
    """The unit's notifications that were found, in the order in which they were sent. `searched` says in words what was read."""

    found: tuple[LeftNotification, ...]
    is_complete: bool
    searched: str


class SentBy(msgspec.Struct, frozen=True):
    """Another name than the unit's by which something that was sent is looked for: one of the two is given."""

    notification_id: str = ""
    end_to_end_id: str = ""

    @property
    def text(self) -> str:
        return self.notification_id or self.end_to_end_id


class Arrived(msgspec.Struct, frozen=True):
    """An envelope that came: its position in the input, when the broker had it (None: not known), and what became of it."""

    position: str
    at: str | None
    became: str


class Arrivals(msgspec.Struct, frozen=True):
    """The envelopes whose positions are known, in their order. `searched` says from where, and what would make others known."""

    found: tuple[Arrived, ...]
    is_complete: bool
    searched: str


class UnitDelivery(msgspec.Struct, frozen=True):
    """What became of a notification at a receiver. `ended_at` is None until it is delivered, or never will be."""

    notification_id: str
    receiver: str
    job: str
    status: str
    attempts: int
    position: str
    taken_at: str
    ended_at: str | None


class UnitDeliveries(msgspec.Struct, frozen=True):
    """The unit's notifications in the ledger of deliveries. `searched` says what was read, or what would make it known."""

    found: tuple[UnitDelivery, ...]
    is_complete: bool
    searched: str


class UnitsFound(msgspec.Struct, frozen=True):
    """The units that a search has found, each once. `searched` says in words what was read, or why nothing was."""

    units: tuple[str, ...]
    is_complete: bool
    searched: str


class UnitOrders(msgspec.Struct, frozen=True):
    """The unit's orders that were found, the oldest first. `searched` says what was read; if not all, `is_complete` is false."""

    found: tuple[ToldOrder, ...]
    is_complete: bool
    searched: str


class Incomplete(msgspec.Struct, frozen=True):
    """How many notifications were sent although something was `missing`, the first one at `at` (None: it does not say when)."""

    missing: str
    at: str | None
    notifications: int


class UnitStory(msgspec.Struct, frozen=True):
    """Everything that is known of a unit here. Instants are ISO 8601 texts in UTC.

    `partition` is where the storage has the unit, None if it has not. Then `meaning` says what that can mean. `looked_in` are the
    partitions that were searched, `problems` what could not be read, and why. If other partitions have the unit too, each has a
    story of its own, and `also_in` names them.

    `state` is None if the storage does not have the unit, or its data cannot be read.

    `hindrance` says why nothing of it is done now even if it is due: the service does not run, or its worker does not work. None
    if no reason is known. `unread` is how far its partition's log extends beyond what its worker read: offsets on Kafka, bytes
    of files. `incomplete` is what was sent although something was missing, as far as what was sent is known.

    `group` is the group of the message that the unit belongs to, as its notifications name it, and `message_id` the message's own
    id, as its payment data has it; None where it is not known, or payments of messages are not counted.

    `orders` is None where orders are not enabled. `calls_waiting` counts the handler's calls that wait to begin in its worker.
    """

    unit: str
    as_of: str
    partition: str | None
    looked_in: tuple[str, ...]
    dead_letters: DeadLetters
    left: Left
    wait: Wait | None = None
    holder: Holder | None = None
    state: UnitState | None = None
    also_in: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    meaning: tuple[str, ...] = ()
    hindrance: str | None = None
    unread: int | None = None
    incomplete: tuple[Incomplete, ...] = ()
    orders: UnitOrders | None = None
    calls_waiting: int = 0
    arrivals: Arrivals | None = None
    deliveries: UnitDeliveries | None = None
    group: str | None = None
    message_id: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether anything of the unit was found: its state, a dead letter, a notification, or an order."""
        return self.partition is not None or bool(self.dead_letters.found or self.left.found or self.found_orders)

    @property
    def found_orders(self) -> tuple[ToldOrder, ...]:
        """The orders that were found, the oldest first."""
        return () if self.orders is None else self.orders.found


def arrivals_of(
    archived: Mapping[str, Instant], written: Mapping[str, Instant], became: Mapping[str, str], searched: str
) -> Arrivals:
    """Return the arrivals at the positions of the archive, and at those that what is known of the unit names."""
    known = {position: origin for position in {*archived, *became} if (origin := Origin.find(position)) is not None}
    at = {**written, **archived}
    found = (
        Arrived(each, instant_text(at[each]) if each in at else None, became.get(each, "not known"))
        for each in sorted(known, key=known.__getitem__)
    )
    return Arrivals(tuple(found), is_complete=False, searched=searched)


def became_of(state: UnitState | None, sent: Left, dead_letters: DeadLetters) -> dict[str, str]:
    """Return what became of each envelope of which a position is known, by positions."""
    became: dict[str, list[str]] = {}
    for position, what in (
        *((each.position, "is stashed") for each in (state.stash if state else ())),
        *((each.position, "was sent") for each in sent.found),
        *((each.position, "dead letter") for each in dead_letters.found),
    ):
        if what not in (known := became.setdefault(position, [])):
            known.append(what)
    return {position: ", ".join(what) for position, what in became.items()}


def incomplete_of(sent: Iterable[LeftNotification]) -> tuple[Incomplete, ...]:
    """Return what was sent although something was missing: one entry for each text of the mark `incomplete`."""
    found: dict[str, Incomplete] = {}
    for each in sent:
        for mark in each.marks:
            name, _, missing = mark.partition(" ")
            if name == INCOMPLETE:
                before = found.get(missing, Incomplete(missing, each.created_at, 0))
                found[missing] = msgspec.structs.replace(before, notifications=before.notifications + 1)
    return tuple(found.values())


_WIDTH, _ROW, _LEFT, _RIGHT, _TOP = 720, 26, 130, 20, 8
_MAX_MARKS = 200
"""How many marks a lane has at most. Lanes of orders have no limit."""

_PROPOSALS = (OrderState.PROPOSED, OrderState.REJECTED, OrderState.EXPIRED)
_LANES = (
    ("sent", "notifications"),
    ("stashed", "stashed"),
    ("dead", "dead letters"),
    ("order", "orders"),
    ("outcome", "outcomes"),
    ("due", "due"),
    ("called", "handler called"),
)


class Mark(NamedTuple):
    """A happening at (x, y). `kind` is one of those of `_LANES`; `text` says what it is."""

    x: float
    y: float
    kind: str
    at: Instant
    text: str


class Lane(NamedTuple):
    """A row of marks of one kind: its name and the height at which it lies."""

    name: str
    y: float


class Timeline(NamedTuple):
    """The picture. The wait, if there is one, is a bar from `wait_x` to `now_x`. All is in the units of the drawing."""

    width: int
    height: int
    marks: tuple[Mark, ...]
    lanes: tuple[Lane, ...]
    first: Instant
    last: Instant
    now_x: float
    wait_x: float | None
    left_edge: int = _LEFT
    right_edge: int = _WIDTH - _RIGHT

    @property
    def text(self) -> str:
        """The picture in words."""
        counts = [(name, sum(mark.kind == kind for mark in self.marks)) for kind, name in _LANES]
        return ", ".join(f"{count} {name if count > 1 else name.removesuffix('s')}" for name, count in counts if count)


def timeline_of(story: UnitStory) -> Timeline | None:
    """Return the picture, None where fewer than two instants are known beside the present one."""
    happened = sorted({*sorted(set(_happenings(story)))[:_MAX_MARKS], *_order_happenings(story)})
    if len(happened) < 2:
        return None
    now = instant_of(story.as_of)
    instants = [at for at, _, _ in happened]
    first, last = min(*instants, now), max(*instants, now)
    span = max(1, last - first)

    def x_of(at: Instant) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * (at - first) / span, 1)

    kinds = [(kind, name) for kind, name in _LANES if any(kind == each for _, each, _ in happened)]
    heights = {kind: _TOP + _ROW * row + _ROW / 2 for row, (kind, _) in enumerate(kinds)}
    marks = tuple(Mark(x_of(at), heights[kind], kind, at, text) for at, kind, text in happened)
    lanes = tuple(Lane(name, heights[kind]) for kind, name in kinds)
    height = _TOP + _ROW * len(kinds) + 24
    wait_x = None if story.wait is None else x_of(instant_of(story.wait.since))
    return Timeline(_WIDTH, height, marks, lanes, first, last, x_of(now), wait_x)


def _happenings(story: UnitStory) -> Iterator[tuple[Instant, str, str]]:
    for each in story.left.found:
        if (at := _find_instant(each.created_at)) is not None:
            yield at, "sent", f"{each.event} sent"
    for stashed in story.state.stash if story.state else ():
        if (at := _find_instant(stashed.stashed_at)) is not None:
            yield at, "stashed", f"{stashed.flow} {stashed.sequence or ''} stashed"
    for dead_letter in story.dead_letters.found:
        if (at := _find_instant(dead_letter.at)) is not None:
            yield at, "dead", f"dead letter {dead_letter.reason}"
    if story.wait is not None:
        yield instant_of(story.wait.until), "called" if story.wait.kind == "call" else "due", story.wait.kind


def _order_happenings(story: UnitStory) -> Iterator[tuple[Instant, str, str]]:
    for each in story.found_orders:
        verb = "proposed" if each.state in _PROPOSALS else "ordered"
        yield instant_of(each.at), "order", f"{each.order} {verb} by {each.by}: {each.because}"
        if each.ended_at is not None:
            yield (
                instant_of(each.ended_at),
                "outcome",
                f"{each.order}: {each.result_or_state}{f': {each.text}' if each.text else ''}",
            )


def _find_instant(text: str | None) -> Instant | None:
    """Return the instant of a text that another program may have written, None if it is none."""
    try:
        return None if text is None else instant_of(text)
    except ValueError:
        return None


_MAX_INTERVALS = 10


def wait_of(waits: Waits) -> Wait:
    since, until = instant_text(waits.since), instant_text(waits.wakes_at)
    return Wait(waits.shown_waits_for, waits.kind.value, since, until, waits.stashed, waits.stashed_bytes)


def waiting_order_text(waiting: Ordered, read_to: int | None, lag_unit: str) -> str:
    """Say for what an order waits in its unit. `read_to` is how far its partition was read, None if that is not known."""
    unread_to, what = waiting.unread_to or 0, "records" if lag_unit == "offsets" else lag_unit
    records = f"for the records up to offset {unread_to:,}" if read_to is None else f"for {max(0, unread_to - read_to):,} {what}"
    until = "" if waiting.until is None else f", until {instant_text(waiting.until)} at most"
    return f"waits {records} since {instant_text(waiting.read_at)}{until}"


def state_of(unit: Unit, strategy: Strategy, read_to: int | None = None, lag_unit: str = "offsets") -> UnitState:
    """Return what the unit remembers. `read_to` and `lag_unit` are of its partition."""
    return UnitState(
        strategy.name,
        unit.handled_count,
        unit.handled_count >= REMEMBERED_ENVELOPES,
        (*_facts(unit, strategy), *_waiting_order(unit, read_to, lag_unit)),
        tuple(_flows(unit.state)),
        tuple(_stash(unit)),
        None if unit.retry is None else _attempts(unit.retry),
        tuple(_payment_data(opened(unit.data))),
    )


class _Header(msgspec.Struct):
    message_id: str | None = msgspec.field(default=None, name="MsgId")


class _Initiation(msgspec.Struct):
    header: _Header | None = msgspec.field(default=None, name="GrpHdr")


def find_message_id(unit: Unit) -> str | None:
    """Return the id of the message of the payment, as the unit's data has it, or else an envelope that waits."""
    data = opened(unit.data)
    kept = data.find_mds(PAIN_001) if isinstance(data, PaymentData) else None
    stashed = (each.envelope for each in unit.stash)
    objects = (one for each in stashed if isinstance(each, DataEnvelope) for one in each.mds_objects)
    body = kept or next((each.body for each in objects if each.object_type == PAIN_001), None)
    try:
        found = None if body is None else msgspec.json.decode(body, type=_Initiation).header
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if found is None else found.message_id


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
    elif isinstance(state, Links):
        yield "Ids remembered", str(state.count)
    elif isinstance(state, Released):
        yield "Highest released", "none" if state.highest is None else _released(state.highest, strategy)
    elif not isinstance(state, Lasts):
        yield "State of the strategy", _in_words(state)
    if unit.hold is not None:
        order = unit.hold.order
        hold = f"by {order.by} since {instant_text(unit.hold.began_at)} until {instant_text(unit.hold.until)}: {order.because}"
        yield "Held", hold
    if unit.remainder is not None:
        yield "Remainder", _remainder(unit.remainder, len(unit.queue))


def _waiting_order(unit: Unit, read_to: int | None, lag_unit: str) -> Iterator[tuple[str, str]]:
    waiting = unit.waiting_order
    if waiting is not None:
        order = waiting.order
        text = waiting_order_text(waiting, read_to, lag_unit)
        yield "Waiting order", f"{order.kind.value} by {order.by} {text}: {order.because}"


def _released(highest: int, strategy: Strategy) -> str:
    return str(highest) if strategy.needs_sequence else instant_text(highest)


def _missing(unit: Unit, strategy: Strategy) -> str:
    """Return what is missing in the unit. These strategies look at no envelope for it, but expect one."""
    waiting = next(iter(unit.stash), None) or (unit.retry.entry if unit.retry else None)
    if waiting is not None:
        return strategy.missing(unit.state, waiting.envelope)
    if isinstance(strategy, Completeness):
        return ", ".join(each for each in strategy.required if each not in unit.state.parts)
    return ""


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


def _remainder(remainder: Remainder, queued: int) -> str:
    why = "a release continues" if remainder.cause is not None else "the last turn had used up its output budget"
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
    yield from (envelope for _, envelope in sorted(waiting, key=_place))


def _place(waiting: tuple[int, StashedEnvelope]) -> tuple[bool, int, int]:
    offset, envelope = waiting
    return envelope.sequence is None, envelope.sequence or 0, offset


def _stashed(stashed: Entry, *, is_queued: bool = False) -> StashedEnvelope:
    envelope = stashed.envelope
    return StashedEnvelope(
        str(envelope.record.origin),
        envelope.sequence,
        envelope.flow,
        instant_text(stashed.stashed_at),
        tuple(_event_names(envelope)),
        envelope.parts,
        envelope.record.size,
        is_queued,
    )


def _undecodable(each: Undecodable) -> StashedEnvelope:
    defect = f"{each.reason.value}: {each.error}"
    return StashedEnvelope(str(each.record.origin), None, "", None, (), (), each.record.size, defect=defect)


def _event_names(event: Event) -> Iterator[str]:
    if isinstance(event, DataEnvelope):
        yield from (each.event_name or each.object_type or "unnamed" for each in event.process_objects)


def _attempts(retry: Retry) -> Attempts:
    due_at: Instant = retry.due_at
    position = str(retry.entry.envelope.record.origin)
    return Attempts(position, retry.attempts, instant_text(due_at), retry.why, retry.dependency, retry.calls, retry.incomplete)


def _payment_data(data: Any) -> Iterator[DataObject]:
    if not isinstance(data, PaymentData):
        return  # What another data handler keeps is known to it alone.
    for kind, bodies in (("mds", data.mds), ("pds", data.pds), ("custom", data.custom)):
        yield from (DataObject(kind, name, len(body)) for name, body in bodies)
