"""Executes orders for the partitions of this worker, each once: the outcome leaves with the position that passes the order."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from time import monotonic
from typing import NamedTuple

from kafka import KafkaProducer, errors

from guardian.headers import DELIVERY_ID, Way, moved_headers, texts_of
from guardian.ports import OrderBatch, OrderRecord, OrderSource, OutputRecord, TransportRefused, TransportUnavailable
from notification_service.connectors.dead_letters.actions import StoredDeadLetter
from notification_service.connectors.kafka.client import make_client, translated
from notification_service.connectors.kafka.requeue import RequeueRoute
from notification_service.connectors.kafka.settings import KafkaSettings
from notification_service.connectors.kafka.topic_reader import CommittedReader
from notification_service.delivery.direct.core.decision import OpenRecord, requeue_topic_of
from notification_service.delivery.direct.core.partition import (
    DirectOrder,
    DirectOrderKind,
    DirectOutcome,
    DirectPartition,
    DirectResult,
    decode,
    encode,
    outcome_record,
)
from notification_service.delivery.errors import OrderRefused
from resequencer.clock import Clock
from resequencer.dead_letter import DeadLetterReason
from resequencer.printable import counted
from resequencer.record import Headers, Origin, Partition

_GRACE_MS = 5_000
"""So long after the first calls must have ended nothing is refused because it is not blocked."""

Letter = Callable[[OpenRecord, DeadLetterReason, str], OutputRecord]


class _Ended(NamedTuple):
    """The outcome of an order, and the records that it makes dead letters."""

    result: DirectResult
    text: str
    dead_letters: Sequence[OpenRecord] = ()


class OrderExecutor:
    """Executes the orders of one partition. The first calls for it end before `settled_at`, of a clock that never goes back."""

    def __init__(self, state: DirectPartition, letter: Letter, clock: Clock, settled_at: int) -> None:
        self._state, self._letter, self._clock, self._settled_at = state, letter, clock, settled_at + _GRACE_MS

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
        ended = self._executed(order, is_young=now < self._settled_at)
        if ended is None:
            return False
        self._pass(record, order.id, ended)
        for each in ended.dead_letters:
            self._dead_letter(each, order)
        return True

    def _pass(self, record: OrderRecord, order_id: str, ended: _Ended) -> None:
        outcome = outcome_record(self._state.partition, record.offset + 1, order_id, ended.result, ended.text, self._clock.now())
        self._state.pass_order(record.offset + 1, outcome)

    def _executed(self, order: DirectOrder, *, is_young: bool) -> _Ended | None:
        if order.order is DirectOrderKind.SKIP:
            assert order.offset is not None, "checked when it was decoded"
            return self._skip(order.offset, is_young=is_young)
        if order.order is DirectOrderKind.SKIP_ALL:
            return self._skip_all(is_young=is_young)
        return self._block()

    def _skip(self, offset: int, *, is_young: bool) -> _Ended | None:
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
        self._state.end(opened, self._letter(opened, DeadLetterReason.SKIPPED, why))


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


_LOOK_SECONDS = 0.2


class OrderTopic:
    """Orders for the partitions of one receiver's source. `settings` are those of its first stage."""

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings, self._topic = settings, settings.topics.orders

    def give(self, partition: Partition, order: DirectOrder) -> int:
        """Write the order durably, and return its offset.

        Raises:
            OrderRefused: The source has no such partition.
            TransportUnavailable, TransportRefused: It is not known whether the order was written.
        """
        if partition.topic != self._settings.topics.input:
            raise OrderRefused(f"{partition} is no partition of {self._settings.topics.input}")
        left_out = ("transactional_id", "transaction_timeout_ms")
        options = {name: value for name, value in self._settings.producer.items() if name not in left_out}
        producer = make_client(self._topic, KafkaProducer, {**options, "enable_idempotence": True, "linger_ms": 0})
        seconds = self._settings.call_timeout_ms / 1_000
        try:
            with translated(self._topic):
                if partition.number not in producer.partitions_for(self._topic):
                    raise OrderRefused(f"{partition} does not exist")
                future = producer.send(self._topic, encode(order), order.id.encode(), partition=partition.number)
                producer.flush(timeout=seconds)
                return int(future.get(timeout=seconds).offset)
        finally:
            with suppress(errors.KafkaError):
                producer.close(timeout=1)

    def wait_for_outcome(
        self, partition: Partition, order: DirectOrder, offset: int, seconds: float, pause: Callable[[float], object]
    ) -> DirectOutcome | None:
        """Return the outcome of the order at `offset`; None if it has none after so many seconds."""
        place = Partition(self._topic, partition.number)
        until = monotonic() + seconds
        with closing(CommittedReader(self._settings, [self._topic], {partition.number})) as reader:
            while True:
                reader.seek_only({place: offset})
                for _, records in reader.read(reader.ends()):
                    for each in records:
                        with suppress(ValueError):
                            found = decode(each.value or b"")
                            if isinstance(found, DirectOutcome) and found.id == order.id:
                                return found
                if monotonic() > until:
                    return None
                pause(_LOOK_SECONDS)


def requeue_route(topic: str, group: str, clock: Clock) -> RequeueRoute:
    """Return the route of the dead letters of a group that reads `topic`: to a topic that only this group reads.

    A record keeps its idempotency key and its place in the source. Its attempts are counted anew.
    """

    def headers_of(letter: StoredDeadLetter) -> Headers:
        headers, record = letter.headers_to_requeue, letter.letter.record
        key = texts_of(headers)[DELIVERY_ID]
        return moved_headers(headers, Way(record.origin), key, 0, letter.letter.error, clock.now())

    return RequeueRoute(topic, requeue_topic_of(topic, group), headers_of, _why_not)


def _why_not(letter: StoredDeadLetter) -> str | None:
    if DELIVERY_ID in texts_of(letter.letter.record.headers):
        return None
    return f"it has no header {DELIVERY_ID}, so another program wrote it: find out which"
