"""Checks operators' orders against their outcomes, and says which deviations from the expected output the orders explain."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from connectors.line_format import Defect, decode_line
from connectors.orders.port import GivenOrder, OrderRecord
from domain.clock import Instant
from domain.headers import ORDER_PARTITION, POSSIBLE_DUPLICATE, texts_of
from domain.order import Order, OrderKind, OrderOutcome, OrderResult, OrderUnreadable, decode_order, decode_outcome
from domain.record import Partition
from simulator.verify.verdict import Deviation, Finding, OrderCounts

_EFFECTIVE = frozenset({OrderResult.DONE, OrderResult.LOST_BY_HEAL})
"""The results after which the order took effect, or may have taken effect."""

_HELD = frozenset({OrderResult.HELD_TO_ITS_END, OrderResult.HELD_UNTIL_RESUMED, OrderResult.HELD_UNTIL_BOUND})
_ONCE = frozenset({OrderKind.RELEASE, OrderKind.SKIP, OrderKind.DEAD_LETTER})
"""These orders cannot be done again: the first time changes what they ask for."""

_GRACE_MS = 60_000
"""A hold begins when its order is executed, which is after the order was given."""


class OrdersLog(NamedTuple):
    """The orders of all partitions, as read at `read_at`, after the outcomes that they are compared with.

    `given` may include proposals. `begins` is where the log of a partition begins: retention deletes orders before it.
    """

    given: Sequence[GivenOrder]
    begins: Mapping[Partition, int]
    without_outcome: Sequence[tuple[Partition, OrderRecord]]
    read_at: Instant


class ObservedOutcome(NamedTuple):
    """A published outcome."""

    partition: Partition
    outcome: OrderOutcome
    is_possible_duplicate: bool


class Explained(msgspec.Struct, frozen=True):
    """What the executed orders explain.

    `released` are the units of which an operator released or skipped something; `disturbed` are these and all other units whose
    waits an order changed. `dead_letters` are the positions (partition and offset) of envelopes that an order made dead letters,
    `set_aside` counts these orders by unit.
    """

    released: frozenset[str] = frozenset()
    disturbed: frozenset[str] = frozenset()
    dead_letters: frozenset[tuple[int, int]] = frozenset()
    set_aside: Mapping[str, int] = msgspec.field(default_factory=dict)


NOTHING = Explained()


class OrdersCheck(NamedTuple):
    """`open` counts the orders that have no outcome yet, holds that still last among them."""

    counts: OrderCounts
    explained: Explained
    findings: tuple[Finding, ...]
    open: int


def read_outcome(line: bytes) -> ObservedOutcome | Defect:
    """Read an outcome from a line of `orders.jsonl` without its newline."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    headers = texts_of(read.headers)
    partition = Partition.find(headers.get(ORDER_PARTITION, ""))
    if partition is None:
        return Defect(f"no header {ORDER_PARTITION}")
    try:
        return ObservedOutcome(partition, decode_outcome(read.value), POSSIBLE_DUPLICATE in headers)
    except OrderUnreadable as error:
        return Defect(str(error))


def explain(outcomes: Iterable[ObservedOutcome]) -> Explained:
    """Return what orders with these outcomes explain."""
    released, disturbed = set[str](), set[str]()
    letters: dict[tuple[int, int], str] = {}
    for partition, outcome, _ in outcomes:
        order = outcome.order
        if order is None or order.unit is None or outcome.result not in _EFFECTIVE | _HELD:
            continue
        disturbed.add(order.unit)
        if order.kind in (OrderKind.RELEASE, OrderKind.SKIP):
            released.add(order.unit)
        elif order.kind is OrderKind.DEAD_LETTER and order.position is not None:
            letters[partition.number, order.position] = order.unit
    return Explained(frozenset(released), frozenset(disturbed), frozenset(letters), Counter(letters.values()))


def check_orders(log: OrdersLog, outcomes: Sequence[ObservedOutcome]) -> OrdersCheck:
    """Compare all orders with all outcomes. `outcomes` were read before the log."""
    given = {(each.partition, each.offset): each.order for each in log.given if each.order.stage is None}
    by_place: defaultdict[tuple[Partition, int], list[ObservedOutcome]] = defaultdict(list)
    for each in outcomes:
        by_place[each.partition, each.outcome.order_offset].append(each)
    two = [place for place, found in by_place.items() if sum(not each.is_possible_duplicate for each in found) > 1]
    findings = [_found(Deviation.ORDER_WITH_TWO_OUTCOMES, place, _named(given.get(place))) for place in two]
    findings += _strange(log, given, by_place)
    findings += _repeated(by_place)
    lasting = [each for each in log.without_outcome if _may_last(each[1], log.read_at)]
    missing = [each for each in log.without_outcome if each not in lasting]
    findings += [_found(Deviation.ORDER_WITHOUT_OUTCOME, (name, each.offset), _told(each)) for name, each in missing]
    results = [found[0].outcome.result for found in by_place.values()]
    unreadable = sum(result is OrderResult.REFUSED_UNREADABLE for result in results)
    unanswered_unreadable = sum(_find_order(each) is None for _, each in log.without_outcome)
    counts = OrderCounts(
        given=len(given) + unreadable + unanswered_unreadable,
        done=sum(each is OrderResult.DONE or each in _HELD for each in results),
        refused=sum(each.is_refusal for each in results),
        lost_by_heal=sum(each is OrderResult.LOST_BY_HEAL for each in results),
        without_outcome=len(log.without_outcome),
        with_two=len(two),
    )
    return OrdersCheck(counts, explain(outcomes), tuple(findings), len(log.without_outcome))


def _strange(
    log: OrdersLog,
    given: Mapping[tuple[Partition, int], Order],
    by_place: Mapping[tuple[Partition, int], Sequence[ObservedOutcome]],
) -> list[Finding]:
    """Return a finding for each outcome whose order is not in the log, although the log reaches back so far."""
    found = []
    for (partition, offset), each in by_place.items():
        order, known = each[0].outcome.order, given.get((partition, offset))
        is_gone = offset < log.begins.get(partition, 0)
        if not is_gone and (None if known is None else known.id) != (None if order is None else order.id):
            found.append(
                _found(Deviation.OUTCOME_WITHOUT_ORDER, (partition, offset), f"{each[0].outcome.result}: {_named(order)}")
            )
    return found


def _repeated(by_place: Mapping[tuple[Partition, int], Sequence[ObservedOutcome]]) -> list[Finding]:
    """Return a finding for each order that stands in the log twice, with one id, and was done twice."""
    done = dict[str, tuple[Partition, int]]()
    found = []
    for place, outcomes in sorted(by_place.items()):
        first = outcomes[0].outcome
        if first.order is None or first.order.kind not in _ONCE or first.result is not OrderResult.DONE:
            continue
        before = done.setdefault(first.order.id, place)
        if before != place:
            what = f"{_named(first.order)} was done there and at {before[1]}"
            found.append(_found(Deviation.ORDER_EXECUTED_TWICE, place, what))
    return found


def _may_last(record: OrderRecord, now: Instant) -> bool:
    """Return whether the order is a hold whose time may not be over."""
    order = _find_order(record)
    if order is None or order.kind is not OrderKind.HOLD:
        return False
    assert order.for_ms is not None, "a hold has a time"
    return now <= order.at + order.for_ms + _GRACE_MS


def _find_order(record: OrderRecord) -> Order | None:
    try:
        return decode_order(record.value)
    except OrderUnreadable:
        return None


def _told(record: OrderRecord) -> str:
    return _named(_find_order(record))


def _named(order: Order | None) -> str:
    if order is None:
        return "a record that is no order"
    return f"{order.kind} {order.id}" + (f" for {order.unit}" if order.unit is not None else "")


def _found(deviation: Deviation, place: tuple[Partition, int], what: str) -> Finding:
    return Finding(deviation, f"orders of {place[0]} at {place[1]}", what)
