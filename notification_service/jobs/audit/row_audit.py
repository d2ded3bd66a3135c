"""Checks the rows, which come unit by unit, and yields findings and measurements."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from notification_service.jobs.audit.finding import Deviation, Finding
from notification_service.jobs.audit.observed import ObservedDeadLetter, ObservedNotification
from notification_service.jobs.audit.replay import Emission
from notification_service.jobs.audit.rows import (
    DEAD_LETTER,
    NOTIFICATION,
    ORDER,
    ORDERS,
    OUTCOME,
    RECORD,
    REFUSED,
    UNPLACED,
    UNREADABLE,
    Row,
    event_of,
    read_dead_letter,
    read_notification,
    read_outcome,
    read_refused,
)
from notification_service.jobs.audit.rules import AuditRules
from notification_service.jobs.audit.unit_audit import NOT_KNOWN, ExpectedDeadLetter, UnitAudit, dead_letter_findings
from notification_service.jobs.audit.unit_output import UnitOutput
from notification_service.judgement.order_check import (
    HELD,
    ORDER_WITHOUT_OUTCOME,
    ObservedOutcome,
    OrderDeviation,
    Place,
    by_place,
    find_deviations,
    may_last,
    name_order,
)
from resequencer.clock import Instant
from resequencer.event import Event
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult, OrderUnreadable, decode_order, decode_outcome
from resequencer.record import Partition
from resequencer.strategies.port import Strategy


class GivenRecord(NamedTuple):
    """A record of the orders log, with its offset."""

    offset: int
    value: bytes


class AuditedOrders(NamedTuple):
    """`results` holds the result of each order, None for an order without an outcome. Proposals are not among them.

    `paused_ms` is for how long the partition was paused; None if it still is.
    """

    deviations: list[OrderDeviation]
    results: list[OrderResult | None]
    paused_ms: int | None


def audit_orders(
    partition: Partition, records: Iterable[GivenRecord], outcomes: Iterable[ObservedOutcome], backlog_wait_ms: int = 600_000
) -> AuditedOrders:
    """Compare the orders with their outcomes.

    An order without an outcome is wrong only if a later one of its partition has one: the others may be executed yet. A hold has
    its outcome when it ends; a release or a skip may wait for `backlog_wait_ms`.
    """
    given = dict[Place, Order | None]()
    for each in records:
        order = _find_order(each.value)
        if order is None or order.stage is None:
            given[partition, each.offset] = order
    answered = by_place(outcomes)
    first = {place: found[0].outcome for place, found in answered.items()}
    last = max((offset for _, offset in first), default=-1)
    now = max((each.at for each in first.values()), default=0)
    deviations = list(find_deviations(given, answered, {}))
    for place, order in given.items():
        if place not in first and place[1] < last and not may_last(order, now, backlog_wait_ms):
            unit = None if order is None else order.unit
            deviations.append(OrderDeviation(ORDER_WITHOUT_OUTCOME, place, unit, name_order(order)))
    results = [first[place].result if place in first else None for place in given]
    return AuditedOrders(deviations, results, _paused_ms(first[place] for place in sorted(first)))


def is_done(result: OrderResult | None) -> bool:
    return result is OrderResult.DONE or result in HELD


def _paused_ms(outcomes: Iterable[OrderOutcome]) -> int | None:
    paused_ms = 0
    since: Instant | None = None
    for each in outcomes:
        if each.order is None or each.result is not OrderResult.DONE:
            continue
        if each.order.kind is OrderKind.PAUSE:
            since = each.at
        elif each.order.kind is OrderKind.RESUME_PARTITION and since is not None:
            paused_ms, since = paused_ms + max(0, each.at - since), None
    return None if since is not None else paused_ms


def _find_order(value: bytes) -> Order | None:
    try:
        return decode_order(value)
    except OrderUnreadable:
        return None


class Overtaken(NamedTuple):
    """By how much an envelope was overtaken. All fields are 0 or None if it was not.

    `depth` counts numbers. `behind` counts the lane's records since the first one with a higher number. `ms` is the time since
    then; None also if it is unknown when records were written.
    """

    depth: int = 0
    behind: int = 0
    ms: int | None = None


class _Lane:
    """The records whose number was higher than all before: their numbers, places among the lane's records, and instants."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: list[int] = []
        self.instants: list[Instant | None] = []
        self.count = 0


class ArrivalOrder:
    """The order in which one unit's envelopes arrive; call `of` for each, in that order.

    Numbers are compared within a lane of the strategy; if the strategy needs no numbers, within a flow.
    """

    def __init__(self, strategy: Strategy) -> None:
        self._strategy = strategy
        self._lanes: dict[str, _Lane] = {}

    def of(self, envelope: Event, at: Instant | None) -> Overtaken:
        number = envelope.sequence
        if number is None:
            return Overtaken()
        name = self._strategy.rank(envelope).lane if self._strategy.needs_sequence else envelope.flow
        lane = self._lanes.setdefault(name, _Lane())
        lane.count += 1
        first_later = bisect_right(lane.numbers, number)
        if first_later < len(lane.numbers):
            since = lane.instants[first_later]
            ms = None if since is None or at is None else max(0, at - since)
            return Overtaken(lane.numbers[-1] - number, lane.count - 1 - lane.places[first_later], ms)
        if not lane.numbers or lane.numbers[-1] < number:
            lane.numbers.append(number)
            lane.places.append(lane.count - 1)
            lane.instants.append(at)
        return Overtaken()


FINDING, UNIT, WAITING, ARRIVAL, PUBLISHED = "finding", "unit", "waiting", "arrival", "notification"
ORDERED, PAUSED, GROUP = "order", "paused", "group"

WITHOUT_OUTCOME = "none"
"""The status of an order without an outcome."""


class ResultRow(NamedTuple):
    """A row of the result; `kind` determines which fields are set.

    * A finding: deviation, unit, partition, offset, what.
    * A unit: the number of notifications that may still come (open).
    * A waiting unit: the offset of the oldest stashed envelope, what it waits for, and how much longer than usual it may wait
      because of orders (waited_ms).
    * An arrival: its flow, and by how many numbers (depth, 0 for none), records and milliseconds it was overtaken.
    * A notification: its status and marks, when it was made, how long its envelope waited, how many records of its unit came
      meanwhile, whether its content could be compared, and the version of the lookups that it names.
    * An order: its result as status.
    * A partition that was paused: for how many milliseconds (waited_ms), None if it still is.
    * A group: its id as unit, the partition of its facts, what has become of it as status (open, complete, incomplete, closed),
      how many payments (depth), facts that count (behind) and reports (waited_records) it has, whether its report may still come
      (open), and whether it could be judged (is_compared).
    """

    kind: str
    unit: str | None = None
    partition: int | None = None
    offset: int | None = None
    deviation: str | None = None
    what: str | None = None
    open: int | None = None
    flow: str | None = None
    depth: int | None = None
    behind: int | None = None
    behind_ms: int | None = None
    status: str | None = None
    made_at: int | None = None
    waited_ms: int | None = None
    waited_records: int | None = None
    is_incomplete: bool | None = None
    is_late: bool | None = None
    is_compared: bool | None = None
    lookups_version: str | None = None


def audit_rows(rows: Iterable[Row], rules: AuditRules) -> Iterator[ResultRow]:
    """Check the rows. All rows of one unit in one partition are consecutive, ordered by kind and place."""
    for (partition, unit), of_unit in groupby(rows, key=_whose):
        if unit == ORDERS:
            yield from _audit_orders(partition, of_unit, rules)
        elif unit.startswith("\x00"):
            yield from _audit_place(partition, of_unit, rules)
        else:
            yield from _audit_unit(partition, unit, of_unit, rules)


def _audit_unit(partition: int, unit: str, rows: Iterable[Row], rules: AuditRules) -> Iterator[ResultRow]:
    audit, order = UnitAudit(partition, unit, rules), ArrivalOrder(rules.strategy)
    arrivals: dict[int, tuple[int, int | None]] = {}
    origin = Partition(rules.settings.topic, partition)
    is_known = False
    for row in rows:
        _add_output(audit.output, row)
        is_known = is_known or row.kind not in (OUTCOME, ORDER)
        if row.kind == RECORD:
            envelope, value_digest = event_of(row, origin, rules)
            if audit.arrive(envelope, value_digest):
                arrivals[row.place] = (len(arrivals), row.at)
                yield _arrival(order, envelope, row)
    if not is_known:  # An order may name a unit that does not exist.
        return
    audited = audit.end()
    yield ResultRow(UNIT, unit, partition, open=audited.open)
    yield from map(_finding, audited.findings)
    oldest, lowest = audited.replay.unit.oldest, rules.context.find_lowest(audited.replay.unit)
    if audited.is_waiting and oldest is not None and lowest is not None and oldest.envelope.offset < audit.settled:
        waits_for = rules.strategy.missing(audited.replay.unit.state, lowest.envelope)
        yield ResultRow(WAITING, unit, partition, oldest.envelope.offset, what=waits_for, waited_ms=audit.output.longer_by_ms)
    for emission in audited.replay.emissions():
        if isinstance(emission.made, ObservedNotification):
            seen = audit.output.find(emission.made.notification_id)
            if seen is not None:
                yield _published(unit, partition, emission, seen, arrivals)


def _add_output(output: UnitOutput, row: Row) -> None:
    if row.kind == NOTIFICATION:
        output.add(read_notification(row.payload))
    elif row.kind == DEAD_LETTER:
        output.add_dead_letter(row.place, read_dead_letter(row.payload))
    elif row.kind == OUTCOME:
        output.add_outcome(decode_outcome(read_outcome(row.payload).value))
    elif row.kind == ORDER:
        output.holds.append(decode_order(row.payload))


def _arrival(order: ArrivalOrder, envelope: Event, row: Row) -> ResultRow:
    depth, behind, behind_ms = order.of(envelope, row.at)
    return ResultRow(
        ARRIVAL, row.unit, row.partition, row.place, flow=envelope.flow, depth=depth, behind=behind, behind_ms=behind_ms
    )


def _published(
    unit: str, partition: int, emission: Emission, seen: ObservedNotification, arrivals: dict[int, tuple[int, int | None]]
) -> ResultRow:
    assert isinstance(emission.made, ObservedNotification)
    index, at = arrivals.get(emission.offset, (0, None))
    last, _ = arrivals.get(emission.trigger, (index, None))
    waited_ms = None if at is None or seen.created_at is None else max(0, seen.created_at - at)
    return ResultRow(
        PUBLISHED,
        unit,
        partition,
        emission.offset,
        status=seen.status,
        made_at=seen.created_at,
        waited_ms=waited_ms,
        waited_records=last - index,
        is_incomplete=seen.incomplete is not None,
        is_late=seen.is_late,
        is_compared=emission.made.digest != NOT_KNOWN,
        lookups_version=seen.version,
    )


def _audit_place(partition: int, rows: Iterable[Row], rules: AuditRules) -> Iterator[ResultRow]:
    """Check the record at one position, which is no envelope, and its dead letters."""
    dead_letters: dict[int, list[ObservedDeadLetter]] = {}
    expected: list[ExpectedDeadLetter] = []
    for row in rows:
        if row.kind == DEAD_LETTER:
            dead_letters.setdefault(row.place, []).append(read_dead_letter(row.payload))
        elif row.kind == REFUSED:
            refused = read_refused(row.payload)
            expected.append(ExpectedDeadLetter(row.place, row.place, refused.reason, refused.error, refused.value_digest))
        elif row.kind == UNREADABLE:
            yield _finding(Finding(Deviation.UNREADABLE, None, partition, None, row.payload.decode()))
    settled = rules.settings.settled.get(partition, 0)
    yield from map(_finding, dead_letter_findings(None, partition, expected, dead_letters, settled))


def _audit_orders(partition: int, rows: Iterable[Row], rules: AuditRules) -> Iterator[ResultRow]:
    """Check the orders of a partition."""
    records, outcomes = list[GivenRecord](), list[ObservedOutcome]()
    origin = Partition(rules.settings.topic, partition)
    for row in rows:
        if row.kind == ORDER:
            records.append(GivenRecord(row.place, row.payload))
        else:
            seen = read_outcome(row.payload)
            outcomes.append(ObservedOutcome(origin, decode_outcome(seen.value), seen.is_possible_duplicate))
    audited = audit_orders(origin, records, outcomes, rules.settings.backlog_wait_ms)
    for each in audited.deviations:
        what = f"{each.what}, at offset {each.place[1]} of the orders"
        yield ResultRow(FINDING, each.unit, partition, None, each.name, what)
    for result in audited.results:
        yield ResultRow(ORDERED, None, partition, status=WITHOUT_OUTCOME if result is None else result.value)
    if audited.paused_ms != 0:
        yield ResultRow(PAUSED, None, partition, waited_ms=audited.paused_ms)


def _finding(found: Finding) -> ResultRow:
    partition, offset = (found.partition, found.offset) if found.partition != UNPLACED else (None, None)
    return ResultRow(FINDING, found.unit, partition, offset, found.deviation.value, found.what)


def _whose(row: Row) -> tuple[int, str]:
    return row.partition, row.unit
