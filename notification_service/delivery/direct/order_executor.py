"""Executes orders for the partitions of this worker, each once: the outcome leaves with the position that passes the order."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from guardian.ports import OrderBatch, OrderRecord, OrderSource, OutputRecord, TransportRefused, TransportUnavailable
from notification_service.delivery.direct.core.decision import OpenRecord
from notification_service.delivery.direct.core.partition import (
    DirectOrder,
    DirectOrderKind,
    DirectOutcome,
    DirectPartition,
    DirectResult,
    decode,
    outcome_record,
)
from notification_service.delivery.direct.core.shared_gate import SharedGate
from resequencer.clock import Clock
from resequencer.dead_letter import DeadLetterReason
from resequencer.printable import counted
from resequencer.record import Origin, Partition

_GRACE_MS = 5_000
"""So long after the first calls must have ended nothing is refused because it is not blocked."""

_OF_RECEIVER = {
    DirectOrderKind.PAUSE: "the receiver is paused: within seconds no worker begins a call; those under way end",
    DirectOrderKind.RESUME: "the receiver gets calls again",
    DirectOrderKind.RETRY_NOW: "each worker whose gate is shut calls now for its first blocked record",
}

MakeDeadLetter = Callable[[OpenRecord, DeadLetterReason, str], OutputRecord]


class _Ended(NamedTuple):
    """The outcome of an order, and the records that it makes dead letters."""

    result: DirectResult
    text: str
    dead_letters: Sequence[OpenRecord] = ()


class OrderExecutor:
    """Executes the orders of one partition. The first calls for it end before `settled_at`, of a clock that never goes back."""

    def __init__(
        self, state: DirectPartition, gate: SharedGate, dead_letter: MakeDeadLetter, clock: Clock, settled_at: int
    ) -> None:
        self._state, self._gate, self._make_dead_letter, self._clock = state, gate, dead_letter, clock
        self._settled_at = settled_at + _GRACE_MS

    @property
    def read_to(self) -> int:
        """The offset from which orders are to be executed."""
        return self._state.orders_read_to

    def execute_all(self, records: Sequence[OrderRecord], now: int) -> None:
        """Execute the orders one after the other, up to one that is not possible yet."""
        for each in records:
            if not self.execute(each, now):
                return

    def execute(self, record: OrderRecord, now: int) -> bool:
        """Execute the order of a record, and pass it; return False if that is not possible yet. Then nothing is changed.

        Outcomes among the records are passed. A record that is neither has an outcome, too: it is refused.
        """
        try:
            order = decode(record.value)
        except ValueError as error:
            self._pass(record, f"record-{record.offset}", _Ended(DirectResult.REFUSED, f"this is no order: {error}"))
            return True
        if isinstance(order, DirectOutcome):
            self._state.pass_order(record.offset + 1)
            return True
        ended = self._executed(order, now)
        if ended is None:
            return False
        self._pass(record, order.id, ended)
        for each in ended.dead_letters:
            self._dead_letter(each, order)
        return True

    def _pass(self, record: OrderRecord, order_id: str, ended: _Ended) -> None:
        outcome = outcome_record(self._state.partition, record.offset + 1, order_id, ended.result, ended.text, self._clock.now())
        self._state.pass_order(record.offset + 1, outcome)

    def _executed(self, order: DirectOrder, now: int) -> _Ended | None:
        is_young = now < self._settled_at
        if order.is_for_receiver:
            return self._for_receiver(order.order)
        if order.order in (DirectOrderKind.SKIP, DirectOrderKind.RETRY_NOW):
            assert order.offset is not None, "checked when it was decoded"
            opened = self._find_blocked(order.offset, is_young=is_young)
            if not isinstance(opened, OpenRecord):
                return opened
            return self._skip(opened) if order.order is DirectOrderKind.SKIP else self._retry_now(opened, now)
        if order.order is DirectOrderKind.SKIP_ALL:
            return self._skip_all(is_young=is_young)
        return self._block()

    def _for_receiver(self, kind: DirectOrderKind) -> _Ended:
        """Each worker of the receiver follows such an order by itself (`ReceiverOrders`); here it gets its one outcome."""
        if self._state.partition.number:
            return _Ended(DirectResult.REFUSED, f"{kind.value} is for the whole receiver: partition 0 takes it")
        return _Ended(DirectResult.DONE, _OF_RECEIVER[kind])

    def _find_blocked(self, offset: int, *, is_young: bool) -> OpenRecord | _Ended | None:
        """Return the blocked record, or why there is none; None if that is not known yet."""
        state = self._state
        opened, where = state.find_open(offset), Origin(state.partition, offset)
        if opened is None:
            if offset >= state.read_to:
                return None if is_young else _Ended(DirectResult.REFUSED, f"{where} was not read yet, so it cannot be blocked")
            return _Ended(
                DirectResult.REFUSED, f"{where} is done already, or was moved to another topic, where it blocks nothing"
            )
        if opened.error is None:
            return None if is_young else _Ended(DirectResult.REFUSED, f"{where} is not blocked: no call for it has failed")
        return opened

    def _retry_now(self, opened: OpenRecord, now: int) -> _Ended:
        where = Origin(self._state.partition, opened.offset)
        if (pause := self._gate.gate.pause) is not None:
            return _Ended(DirectResult.REFUSED, f"the receiver is {pause.text}; resume it first")
        if not self._state.retry_now(opened, now):
            return _Ended(DirectResult.REFUSED, f"{where} is called at this moment")
        self._gate.probe_now(now)
        return _Ended(DirectResult.DONE, f"{where} is called next")

    def _skip(self, opened: OpenRecord) -> _Ended | None:
        state, where = self._state, Origin(self._state.partition, opened.offset)
        if not state.recall([opened]):
            # A call is under way. If it fails, its end makes the record a dead letter; then this is asked again.
            opened.is_to_skip = True
            return None
        return _Ended(DirectResult.DONE, f"{where} is a dead letter", [opened])

    def _skip_all(self, *, is_young: bool) -> _Ended | None:
        state = self._state
        if state.skips_all:
            return _Ended(DirectResult.REFUSED, f"what fails in {state.partition} is skipped already")
        # A record that only waits for a receiver that sleeps has done nothing wrong.
        blocked = [each for each in state.blocked() if each.failed_at is not None]
        if not blocked:
            return None if is_young else _Ended(DirectResult.REFUSED, f"nothing is blocked in {state.partition}")
        state.skips_all = True
        waiting = sorted(state.recall(blocked), key=lambda each: each.offset)
        called = len(blocked) - len(waiting)
        more = f", and {called} more if the call that is under way fails" if called else ""
        text = f"{counted(len(waiting), 'record')} became dead letters{more}; so does what fails from now on, until `block`"
        return _Ended(DirectResult.DONE, text, waiting)

    def _block(self) -> _Ended:
        state = self._state
        if not state.skips_all:
            return _Ended(DirectResult.REFUSED, f"what fails in {state.partition} is not skipped")
        state.skips_all = False
        return _Ended(DirectResult.DONE, f"what fails in {state.partition} is tried again, as the policy says")

    def _dead_letter(self, opened: OpenRecord, order: DirectOrder) -> None:
        why = f"{order.by} ordered it: {order.because}. The last call failed with: {opened.error}"
        self._state.end(opened, self._make_dead_letter(opened, DeadLetterReason.SKIPPED, why))


_LOG = logging.getLogger("resequencer.delivery")
_AT_ONCE = 100


class OrderReading:
    """Says once why orders cannot be read."""

    def __init__(self) -> None:
        self._waits_for: str | None = None

    def read(self, orders: OrderSource, wanted: Mapping[Partition, OrderExecutor]) -> Mapping[Partition, OrderBatch]:
        """Return the next orders of the partitions; none while they cannot be read. Called in the transport's thread."""
        try:
            found = orders.poll({name: each.read_to for name, each in wanted.items()}, _AT_ONCE)
        except (TransportUnavailable, TransportRefused) as error:
            if str(error) != self._waits_for:
                _LOG.warning("orders wait: %s", error)
            self._waits_for = str(error)
            return {}
        self._waits_for = None
        return found
