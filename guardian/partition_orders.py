"""The orders of a partition: which were executed, what is asked of the partition itself, and what of its units. Pure.

The state is part of the partition's header, so it moves with the effects of the orders in one commit
(docs/decisions/0041-orders.md).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from guardian.ports import OrderBatch, OrderRecord
from resequencer.clock import SKEW_MS, Instant, instant_text
from resequencer.order import Order, OrderKind, OrderOutcome, OrderResult, OrderUnreadable, decode_order, is_same_person
from resequencer.unit import Ordered

_KEPT_MS, _LOOKS, _MAX_KEPT = 86_400_000, 16, 1_000
"""A decision on a proposal is remembered for a day, as long as a proposal may be decided: until decisions of so many looks at the
orders are all a day younger. So a clock that is ahead for a moment makes none forgotten. There are never more than the last
number, for each commit writes them."""
_SHOWN = 60
"""How many characters of a decision are remembered."""

_PAUSES = 16
"""How many pauses are remembered. Deadlines of units that began to wait before older ones are due earlier by these."""


class Pause(msgspec.Struct, frozen=True, array_like=True):
    """A time in which the input of a partition was not read. `until` is None for the present one."""

    since: Instant
    until: Instant | None
    by: str = ""


Pauses = tuple[Pause, ...]


def is_paused(pauses: Pauses) -> bool:
    return bool(pauses) and pauses[-1].until is None


def paused_ms(pauses: Pauses, since: Instant) -> int:
    """Return for how long the deadline of a unit that waits since `since` has rested in pauses that are over."""
    return sum(max(0, each.until - max(each.since, since)) for each in pauses if each.until is not None)


def pauses_by_this_clock(pauses: Pauses, now: Instant) -> Pauses:
    """Return the pauses with possible ends: one that ends in the future, by a clock that was ahead, ends now."""
    return tuple([replace(each, until=now) if each.until is not None and each.until > now + SKEW_MS else each for each in pauses])


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """The first decision on an id, which is known by a digest, and when it was read."""

    digest: str
    at: Instant
    decision: str


class PartitionOrders(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the header knows of a partition's orders.

    `next_offset` is the next offset to read in the partition's orders log. An order before `heal_offset` may have been executed
    before the storage lost it: its outcome is marked. `decided` are the decisions on proposals of the last day, oldest first.

    With `is_being_reset` the partition goes back to its initial state, and its units are not all removed yet
    (guardian/takeover.py).
    """

    next_offset: int = 0
    heal_offset: int = 0
    pauses: Pauses = ()
    decided: tuple[Decided, ...] = ()
    is_being_reset: bool = False

    @property
    def is_paused(self) -> bool:
        return is_paused(self.pauses)

    @property
    def present_pause(self) -> Pause | None:
        """The pause that is not over yet."""
        return self.pauses[-1] if self.is_paused else None

    def encode(self) -> str:
        """Return the text for the header; empty as long as there was no order."""
        return "" if self == _NONE else msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> "PartitionOrders":
        return msgspec.json.decode(text, type=cls) if text else _NONE


_NONE = PartitionOrders()


class OrderRules(msgspec.Struct, frozen=True):
    """Which kinds need a second person, and whether the storage is durable: without that, no order for a unit is accepted.

    An order waits for unread records for `backlog_wait_ms` at most.
    """

    approval: frozenset[OrderKind] = frozenset()
    is_durable: bool = True
    backlog_wait_ms: int = 600_000


class TakenOrders(NamedTuple):
    """Orders that were read: the state after them, the orders of the units, and the outcomes that are known already."""

    after: PartitionOrders
    of_units: Mapping[str, Sequence[Ordered]]
    outcomes: Sequence[OrderOutcome]


def take_orders(
    before: PartitionOrders, batch: OrderBatch, rules: OrderRules, now: Instant, *, unread_to: int | None = None
) -> TakenOrders:
    """Read the records of a batch in order. Proposals and rejections have no outcome. The first decision on an id counts.

    `unread_to` is where the log of the partition ends, None if all of it was read. In a paused partition no order waits for that.
    """
    after, outcomes = replace(before, next_offset=batch.next_offset), list[OrderOutcome]()
    of_units: defaultdict[str, list[Ordered]] = defaultdict(list)
    for record in batch.records:
        try:
            order = decode_order(record.value)
        except OrderUnreadable as error:
            outcomes.append(_outcome(None, record, OrderResult.REFUSED_UNREADABLE, str(error), now))
            continue
        refusal = _find_decision(after, order) or _find_refusal(order, rules)
        if order.is_decision and refusal is None:
            after = _with_decision(after, order, now)
        if order.stage is not None:
            continue
        if refusal is not None:
            outcomes.append(_outcome(order, record, *refusal, now))
        elif order.unit is not None and not order.kind.is_of_partition:
            until = None if after.is_paused else now + rules.backlog_wait_ms
            of_units[order.unit].append(Ordered(order, record.offset, now, unread_to, until))
        else:
            after, ended = _execute(after, order, now)
            outcomes.append(_outcome(order, record, *ended, now))
    return TakenOrders(after, of_units, outcomes)


def lost_by_heal(records: Sequence[OrderRecord], end: int, now: Instant) -> tuple[OrderOutcome, ...]:
    """Return the outcomes of orders before `end` that a storage has lost together with the whole partition."""
    text = "the storage lost the partition: whether the order was executed is not known; look at the unit, and order again"
    lost: list[OrderOutcome] = []
    for record in records:
        if record.offset >= end:
            continue
        try:
            order = decode_order(record.value)
        except OrderUnreadable:
            lost.append(_outcome(None, record, OrderResult.LOST_BY_HEAL, text, now))
        else:
            lost.append(_outcome(order, record, OrderResult.LOST_BY_HEAL, text, now))
    return tuple(lost)


def _find_decision(orders: PartitionOrders, order: Order) -> tuple[OrderResult, str] | None:
    digest = _digest(order)
    first = next((each for each in orders.decided if each.digest == digest), None)
    if first is None:
        return None
    text = f"it was {first.decision} already, at {instant_text(first.at)}: the first decision counts"
    return OrderResult.REFUSED_DECIDED, text


def _with_decision(before: PartitionOrders, order: Order, now: Instant) -> PartitionOrders:
    new = Decided(_digest(order), now, order.decision[:_SHOWN])
    decided = (*before.decided, new)[-_MAX_KEPT:]
    looks = list(dict.fromkeys([each.at for each in reversed(decided)]))[:_LOOKS]
    since = min(looks) - _KEPT_MS
    return replace(before, decided=tuple([each for each in decided if each.at > since]))


def _digest(order: Order) -> str:
    return sha256(order.id.encode()).hexdigest()[:32]


def _find_refusal(order: Order, rules: OrderRules) -> tuple[OrderResult, str] | None:
    if order.stage is not None:
        return None
    if order.kind in rules.approval and (order.approved_by is None or is_same_person(order.approved_by, order.by)):
        return OrderResult.REFUSED_NOT_APPROVED, f"{order.kind.value} needs the approval of a second person (http.approval)"
    if not rules.is_durable and not order.kind.is_of_partition:
        return OrderResult.REFUSED_IMPOSSIBLE, "with storage none only pause and resume of a partition are possible"
    return None


def _execute(before: PartitionOrders, order: Order, now: Instant) -> tuple[PartitionOrders, tuple[OrderResult, str]]:
    """Execute an order for the partition itself."""
    pauses = pauses_by_this_clock(before.pauses, now)
    if order.kind is OrderKind.PAUSE:
        if before.is_paused:
            text = f"the partition is paused by {pauses[-1].by} since {instant_text(pauses[-1].since)} already"
            return before, (OrderResult.REFUSED_IMPOSSIBLE, text)
        after = replace(before, pauses=(*pauses, Pause(now, None, order.by))[-_PAUSES:])
        return after, (OrderResult.DONE, "the partition is paused: its input is not read, and its deadlines rest")
    if not before.is_paused:
        return before, (OrderResult.REFUSED_IMPOSSIBLE, "the partition is not paused")
    after = replace(before, pauses=(*pauses[:-1], replace(pauses[-1], until=max(now, pauses[-1].since))))
    return after, (OrderResult.DONE, "the partition's input is read again")


def _outcome(order: Order | None, record: OrderRecord, result: OrderResult, text: str, now: Instant) -> OrderOutcome:
    return OrderOutcome(order=order, order_offset=record.offset, result=result, text=text, at=now)
