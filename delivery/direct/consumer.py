"""Delivers what one topic holds: reads it as a member of a consumer group, makes the calls, and commits positions."""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import NamedTuple, TypeVar

from connectors.orders.port import OrderSource
from connectors.port import (
    NothingLeft,
    OutputRecord,
    PartitionOutput,
    PublishRefused,
    Transport,
    TransportRefused,
    TransportUnavailable,
    TransportWithheld,
)
from delivery.answers import outcome_of
from delivery.caller import Caller
from delivery.direct.decision import Dead, Decision, Ended, Moves, Waits, decide
from delivery.direct.open_record import OpenRecord
from delivery.direct.order_executor import OrderExecutor
from delivery.direct.outputs import dead_letter, moved
from delivery.direct.partition import DirectPartition
from delivery.direct.position_metadata import PositionMetadata, find_metadata
from delivery.direct.reading import Reading
from delivery.direct.shared_gate import SharedGate
from delivery.direct.stages import Stage
from delivery.rows import Tries
from delivery.settings import Step
from domain.clock import Clock
from domain.dead_letter import DeadLetterReason
from domain.record import Partition, Record
from guardian.done_offsets import DoneOffsets

_LOG = logging.getLogger(__name__)
_Found = TypeVar("_Found")

_AT_ONCE = 500
"""How many records a poll takes, and how many that are due may wait for a call before no more are read."""

_COMMIT_SECONDS = 0.2
_COMMIT_BYTES = 8 << 20
_WRITING_SHARE = 10
_ORDERS_SECONDS, _ORDERS_AT_ONCE = 1.0, 100
_TO_SKIP_MS = 60_000
_BUSY_POLL_MS, _IDLE_POLL_MS = 20, 500
_PAUSE_SECONDS = 1.0
_TAKEOVER_SECONDS = 5.0
_DRAIN_SECONDS = 12.0
"""Less than a delivery worker has for the end of all that it does."""


class StageClients(NamedTuple):
    """The transport of a stage, and where its orders come from; None if there are none."""

    transport: Transport
    orders: OrderSource | None = None


class _Owned:
    """A partition of this worker, with the calls that are under way for it."""

    def __init__(self, state: DirectPartition, reading: Reading, executor: OrderExecutor) -> None:
        self.state = state
        self.reading = reading
        self.executor = executor
        self.calls: set[asyncio.Task[None]] = set()
        self.log_end = state.read_to


class StageConsumer:
    """All state is used from the event loop alone. The transport is used from a thread of its own, one call at a time.

    After a crash, records are called again of which no position says that they are done, under the same idempotency key.
    """

    def __init__(
        self,
        stage: Stage,
        open_clients: Callable[[], StageClients],
        caller: Caller,
        gate: SharedGate,
        clock: Clock,
    ) -> None:
        self.stage = stage
        self._open_clients = open_clients
        self._transport, self._orders = open_clients()
        self._caller, self._gate, self._clock = caller, gate, clock
        self._owned: dict[Partition, _Owned] = {}
        self._attempt: list[tuple[_Owned, PartitionOutput]] = []
        self._commits_at = 0.0
        self._orders_at = 0.0
        self._orders_wait_for: str | None = None
        self._tries_at: dict[Partition, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, f"delivery-{stage.group}")
        self._is_stopping = False
        self._failure: BaseException | None = None
        self.problem: str | None = None
        """Why the topic is not read, or what is done is not committed; None while all is well."""
        self.refused: dict[Partition, str] = {}
        """Partitions that cannot be read until a person acts."""
        gate.listen(self._start_calls)

    @property
    def partitions(self) -> list[tuple[DirectPartition, int]]:
        """The partitions of this worker, each with the end of its log as last seen."""
        return [(each.state, each.log_end) for each in self._owned.values()]

    async def run(self) -> None:
        """Deliver until `stop`; then let the calls under way end, and commit what is done."""
        try:
            while not self._is_stopping:
                await self._guarded(self._turn)
                if self._failure is not None:
                    raise self._failure
            await self._drain()
        finally:
            self.stop()
            await self._close()
            self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """Begin no more calls."""
        self._is_stopping = True
        self._cancel_timer()

    async def _guarded(self, turn: Callable[[], object]) -> bool:
        """Take a turn; return whether it went well. What does not answer is asked again after a pause."""
        try:
            await turn()  # type: ignore[misc]
        except PublishRefused as error:
            _LOG.info("%s: %s", self.stage.topic, error)  # The next poll tells which partitions are left.
            return False
        except (TransportUnavailable, TransportRefused) as error:
            if isinstance(error, NothingLeft):
                self._withdraw_attempt()
            if self.problem != str(error):
                _LOG.warning("delivery of topic %s has stopped: %s", self.stage.topic, error)
            self.problem = str(error)
            if isinstance(error, TransportRefused) and not isinstance(error, TransportWithheld):
                # The transport cannot be used any more. A new client sees what an operator has repaired.
                await self._close()
                self._transport, self._orders = self._open_clients()
            await asyncio.sleep(_PAUSE_SECONDS)
            return False
        if self.problem is not None:
            _LOG.info("delivery of topic %s goes on", self.stage.topic)
            self.problem = None
        return True

    async def _close(self) -> None:
        """Give up all calls and partitions, and close the clients."""
        calls = [call for owned in self._owned.values() for call in owned.calls]
        self._owned, self._attempt = {}, []
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._in_thread(self._transport.close)
        if self._orders is not None:
            await self._in_thread(self._orders.close)

    async def _turn(self) -> None:
        await self._follow()
        resting = [name for name, owned in self._owned.items() if self._rests(owned.state)]
        rooms = [owned.state.room for name, owned in self._owned.items() if name not in resting]
        is_busy = any(owned.calls or owned.state.has_news for owned in self._owned.values()) or not self._owned
        wait_ms = _BUSY_POLL_MS if is_busy else _IDLE_POLL_MS
        polled = await self._in_thread(partial(self._transport.poll, max(1, min([_AT_ONCE, *rooms])), wait_ms, resting))
        now = self._now()
        for name, next_offset in polled.next_offsets.items():
            if (owned := self._owned.get(name)) is not None:
                found = [each for each in polled.records if each.origin.partition == name]
                self._read(owned, [each for each in found if not owned.state.is_done(each.origin.offset)], next_offset, now)
        for name, end in polled.log_ends.items():
            if name in self._owned:
                self._owned[name].log_end = end
        if self._orders is not None and monotonic() > self._orders_at:
            self._orders_at = monotonic() + _ORDERS_SECONDS
            await self._execute_orders(self._orders)
        self._start_calls()
        if monotonic() > self._commits_at:
            await self._publish()

    async def _execute_orders(self, orders: OrderSource) -> None:
        """Execute what operators have ordered for these partitions. While orders cannot be read, delivery goes on."""
        reads_from = {name: owned.state.orders_read_to for name, owned in self._owned.items()}
        try:
            batches = await self._in_thread(partial(orders.poll, reads_from, _ORDERS_AT_ONCE))
        except (TransportUnavailable, TransportRefused) as error:
            if str(error) != self._orders_wait_for:
                _LOG.warning("orders wait: %s", error)
            self._orders_wait_for = str(error)
            return
        self._orders_wait_for = None
        for name, batch in batches.items():
            if (owned := self._owned.get(name)) is not None:
                for record in batch.records:
                    if not owned.executor.execute(record, self._now()):
                        break

    def _rests(self, state: DirectPartition) -> bool:
        return state.pause is not None or state.ready_count >= _AT_ONCE or state.leaving_bytes >= _COMMIT_BYTES

    def _read(self, owned: _Owned, records: Sequence[Record], next_offset: int, now: int) -> None:
        opened, letters = list[OpenRecord](), list[OutputRecord]()
        for record in records:
            if (each := owned.reading.open(record, now)) is None:
                continue
            if (flaw := owned.reading.find_flaw(each)) is None:
                opened.append(each)
            else:
                letters.append(self._letter(each, flaw.reason, str(flaw)))
        owned.state.read(opened, next_offset, letters)

    async def _follow(self) -> None:
        """Drop the partitions that the group has taken away, and take over new ones."""
        assigned = set(await self._in_thread(self._transport.assignment))
        for gone in self._owned.keys() - assigned:
            for call in self._owned.pop(gone).calls:
                call.cancel()
        self.refused = {each: why for each, why in self.refused.items() if each in assigned}
        for new in sorted(assigned - self._owned.keys()):
            if monotonic() >= self._tries_at.get(new, 0.0):
                await self._take_over(new)

    async def _take_over(self, partition: Partition) -> None:
        try:
            self._owned[partition] = await self._in_thread(partial(self._taken_over, partition, self._now()))
            self.refused.pop(partition, None)
        except TransportUnavailable as error:
            # One partition may still have an open transaction while others are readable.
            _LOG.info("%s is taken over a little later: %s", partition, error)
            self._tries_at[partition] = monotonic() + _COMMIT_SECONDS
        except TransportRefused as error:
            if self.refused.get(partition) != str(error):
                _LOG.error("%s", error)
            self.refused[partition] = str(error)
            self._tries_at[partition] = monotonic() + _TAKEOVER_SECONDS

    def _taken_over(self, partition: Partition, now: int) -> _Owned:
        position = self._transport.position(partition)
        offset = self._transport.start_offset(partition) if position is None else position.offset
        if position is not None and position.metadata:
            metadata = find_metadata(offset, position.metadata)
        else:
            # Skip older orders: without a stored position they may refer to other offsets.
            metadata = PositionMetadata(DoneOffsets(offset), orders_read_to=self._find_end_of_orders(partition))
        if metadata is None:
            problem = (
                "its position holds what this version cannot read: start the version that wrote it, or set the group's position"
            )
            raise TransportRefused(str(partition), problem)
        source = self._transport.source(partition)
        self._transport.seek(partition, offset)
        state = DirectPartition(partition, offset, metadata, self.stage.receiver.blocked_bytes)
        executor = OrderExecutor(state, self._letter, self._clock, now)
        return _Owned(state, Reading(self.stage, self._gate, self._clock, source), executor)

    def _find_end_of_orders(self, partition: Partition) -> int:
        try:
            return self._orders.bounds(partition).stop if self._orders is not None else 0
        except TransportRefused as error:  # The source has grown since its topic of orders was made: there are no orders yet.
            _LOG.warning("no orders for %s until the workers are started again: %s", partition, error)
            return 0

    def _start_calls(self) -> None:
        """Begin as many calls as the gate permits, and see to it that this is tried again when the next record is due."""
        self._cancel_timer()
        if self._is_stopping:
            return
        now = self._now()
        for owned in random.sample(list(self._owned.values()), len(self._owned)):  # None of them always comes first.
            while (permitted := self._gate.permits(now, _AT_ONCE)) > 0 and (due := owned.state.take_due(now, permitted)):
                for record in due:
                    self._gate.begin(now, record.row)
                    call = asyncio.get_running_loop().create_task(self._deliver(owned, record))
                    owned.calls.add(call)
                    call.add_done_callback(partial(self._forget, owned))
        nexts = [each for owned in self._owned.values() if (each := owned.state.find_next_due()) is not None]
        if nexts:
            at = min(nexts) if min(nexts) > now else self._gate.retries_at(now)
            self._timer = asyncio.get_running_loop().call_later((at - now) / 1_000, self._start_calls)

    def _forget(self, owned: _Owned, call: "asyncio.Task[None]") -> None:
        owned.calls.discard(call)
        if not call.cancelled() and call.exception() is not None:
            self._failure = call.exception()

    async def _deliver(self, owned: _Owned, record: OpenRecord) -> None:
        outcome = None
        try:
            reply = await self._caller.call(record)
            chance = random.random()  # noqa: S311 - Jitter is no secret.
            outcome = outcome_of(self.stage.receiver, Step.DELIVER, reply, Tries(record.attempts), chance)
        finally:
            is_asleep = self._gate.end(self._now(), record.row, outcome)
            if outcome is not None and self._owned.get(owned.state.partition) is owned:
                self._apply(owned, record, decide(outcome, skips=owned.state.skips_all, is_asleep=is_asleep))
            self._gate.wake()

    def _apply(self, owned: _Owned, record: OpenRecord, decision: Decision) -> None:
        if isinstance(decision, Ended):
            owned.state.end(record)
            return
        record.error = decision.error
        if record.blocked_since is None:
            record.blocked_since = self._clock.now()
        if isinstance(decision, Waits):
            record.attempts += decision.counts
            # What an operator wants back is not called again before the order is executed.
            owned.state.again(record, self._now() + (_TO_SKIP_MS if record.is_to_skip else decision.after_ms))
            return
        record.attempts += 1
        if isinstance(decision, Moves) and self.stage.next_topic is not None:
            owned.state.end(record, moved(record, self.stage.next_delay_ms, decision.error, self._clock.now()))
            return
        reason = decision.reason if isinstance(decision, Dead) else DeadLetterReason.ATTEMPTS_EXHAUSTED
        owned.state.end(record, self._letter(record, reason, decision.error))

    def _letter(self, record: OpenRecord, reason: DeadLetterReason, error: str) -> OutputRecord:
        _LOG.warning("%s becomes a dead letter (%s) of %s", record.way.origin, reason, self.stage.dead_letters)
        return dead_letter(record, reason, error, self._clock.now())

    async def _publish(self) -> None:
        """Commit positions, with what is leaving, in one transaction. An attempt without an answer is repeated unchanged."""
        self._attempt = [(owned, output) for owned, output in self._attempt if self._is_ours(owned)]
        if not self._attempt:
            self._attempt = self._next_attempt()
        if not self._attempt:
            return
        await self._in_thread(partial(self._transport.publish, [output for _, output in self._attempt]))
        for owned, output in self._attempt:
            owned.state.published(output)
        self._attempt = []

    def _next_attempt(self) -> list[tuple[_Owned, PartitionOutput]]:
        attempt: list[tuple[_Owned, PartitionOutput]] = []
        taken, begun = 0, monotonic()
        for owned in self._owned.values():
            if owned.state.has_news and taken < _COMMIT_BYTES:
                taken += owned.state.leaving_bytes
                attempt.append((owned, owned.state.output()))
        # Long lists of what is done take long to write: most of the time is left for calls.
        self._commits_at = monotonic() + max(_COMMIT_SECONDS, _WRITING_SHARE * (monotonic() - begun))
        return attempt

    def _withdraw_attempt(self) -> None:
        """Nothing of the attempt was published: it is made anew."""
        for owned, _ in self._attempt:
            owned.state.has_news = True
        self._attempt = []

    def _is_ours(self, owned: _Owned) -> bool:
        return self._owned.get(owned.state.partition) is owned

    async def _drain(self) -> None:
        calls = {call for owned in self._owned.values() for call in owned.calls}
        until = monotonic() + _DRAIN_SECONDS
        if calls:
            await asyncio.wait(calls, timeout=_DRAIN_SECONDS)
        while monotonic() < until and (self._attempt or any(owned.state.has_news for owned in self._owned.values())):
            await self._guarded(self._last_turn)

    async def _last_turn(self) -> None:
        """Commit. A refusal is resolved by the group's work, which is done by a poll."""
        await self._follow()
        await self._publish()
        if self._attempt:
            await self._in_thread(partial(self._transport.poll, 0, _BUSY_POLL_MS))

    async def _in_thread(self, call: Callable[[], _Found]) -> _Found:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _now(self) -> int:
        return round(asyncio.get_running_loop().time() * 1_000)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
