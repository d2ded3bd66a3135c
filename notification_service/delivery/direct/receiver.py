"""A receiver that is delivered to straight from topics: its stages, which share calls and gate."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

import msgspec

from guardian.ports import OrderRecord, TransportRefused, TransportUnavailable
from notification_service.delivery.caller import Caller, CallTally, Network
from notification_service.delivery.core.backlog import Backlog, BacklogTrend, make_backlog
from notification_service.delivery.core.jobs import Pause
from notification_service.delivery.direct.consumer import StageConsumer
from notification_service.delivery.direct.core.decision import Stage, former_stage
from notification_service.delivery.direct.core.partition import waits_for_its_time
from notification_service.delivery.direct.core.receiver_orders import ReceiverOrders, find_retention_note
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.owned import StageClients
from notification_service.delivery.direct.stage_calls import CallSlots
from notification_service.delivery.settings import Receiver
from resequencer.clock import Instant, SteadyClock, instant_text
from resequencer.record import Origin, Partition

_LOG = logging.getLogger("resequencer.delivery")
_PAUSE_SECONDS = 2.0
_ORDERS_SECONDS = 1.0
_RETENTION_TURNS = 300
"""For how long its topics keep records is asked once in so many looks at the orders."""

_MAX_BLOCKED = 20


class BlockedRecord(msgspec.Struct, frozen=True):
    """A record of which a call has failed. `attempts` counts the failed calls that count, of all stages."""

    origin: Origin
    key: str
    since: Instant
    attempts: int
    error: str


class PartitionReport(msgspec.Struct, frozen=True):
    """How far a partition is delivered. `position` to `end` are the offsets that are not done or not read.

    `blocked` are the first of the `blocked_count` records of which a call has failed. `oldest_at` is when the first record that
    was read and is not done was written to the topic. `pause` says why nothing more of it is read, None if it is read on;
    `problem` why it cannot be read at all. `backlog` is None if it is not known.
    """

    partition: Partition
    position: int = 0
    end: int = 0
    open_count: int = 0
    blocked_count: int = 0
    blocked: tuple[BlockedRecord, ...] = ()
    oldest_at: Instant | None = None
    skips_all: bool = False
    pause: str | None = None
    problem: str | None = None
    backlog: Backlog | None = None


class DirectReport(msgspec.Struct, frozen=True):
    """What one delivery worker does for a receiver. `shut_because` is None while its gate is open.

    `shut_since` and `probe_at` are wall-clock instants. `problem` says why one of its topics is not delivered from, and `notes`
    what does not stop it, but should be known. `pause`: a person wants no calls.
    """

    receiver: str
    shut_because: str | None
    shut_since: Instant
    probe_at: Instant
    problem: str | None
    partitions: tuple[PartitionReport, ...]
    notes: tuple[str, ...] = ()
    pause: Pause | None = None


class OrderLogPort(Protocol):
    """Where the orders for a receiver as a whole are. Used by one thread; any call may raise the errors of a transport."""

    def read(self, after: int) -> tuple[Sequence[OrderRecord], int]:
        """Return the orders from an offset on, and the present end."""
        ...

    def find_retentions(self, topics: Sequence[str]) -> Mapping[str, int]:
        """Return for how many ms these topics keep their records, as far as that is known and not for ever."""
        ...

    def close(self) -> None: ...


class Topics(NamedTuple):
    """`make` makes the topics that are missing; `open_clients` returns the clients of a stage, unconnected, and `open_orders` the
    orders for the receiver; None: it gets none.

    `make` returns the retry topics that hold unread records though there is no interval for them any more, each with its group:
    what they hold is delivered, too.
    """

    make: Callable[[], Mapping[str, str]]
    open_clients: Callable[[Stage], StageClients]
    open_orders: Callable[[], OrderLogPort] | None = None


class DirectReceiver:
    """No call begins before its orders were read once: it may be paused."""

    def __init__(
        self,
        name: str,
        receiver: Receiver,
        stages: Sequence[Stage],
        topics: Topics,
        clock: SteadyClock,
        forbidden: Sequence[Network] = (),
    ) -> None:
        self.name, self.tally = name, CallTally()
        self._receiver, self._stages, self._forbidden = receiver, stages, forbidden
        self._topics, self._clock = topics, clock
        self._gate = SharedGate(receiver)
        self._gate.is_known = topics.open_orders is None
        self._orders = ReceiverOrders()
        self._retentions: Mapping[str, int] = {}
        self._consumers: list[StageConsumer] = []
        self._trends: dict[Partition, BacklogTrend] = {}
        self._is_stopping = asyncio.Event()
        self._problem: str | None = None

    async def run(self, threads: Executor) -> None:
        """Deliver until `stop`, then end what is under way."""
        former = await self._made(threads)
        if former is None:
            return
        stages = [*self._stages, *(former_stage(self._stages, topic, group) for topic, group in former.items())]
        caller, slots = Caller(self._receiver, self._forbidden, self.tally), CallSlots(self._gate)
        open_clients = self._topics.open_clients
        self._consumers = [StageConsumer(each, partial(open_clients, each), caller, slots, self._clock) for each in stages]
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._consumers:
                    group.create_task(each.run())
                following = group.create_task(self._follow_orders(slots))
                await self._is_stopping.wait()
                following.cancel()
                for each in self._consumers:
                    each.stop()
        finally:
            await caller.close()

    def stop(self) -> None:
        self._is_stopping.set()

    async def _follow_orders(self, slots: CallSlots) -> None:
        """Do what the orders for the receiver say, as soon as they are read."""
        if self._topics.open_orders is None:
            return
        log, loop, thread = self._topics.open_orders(), asyncio.get_running_loop(), ThreadPoolExecutor(1, f"orders-{self.name}")
        try:
            for turn in count():
                try:
                    found, end = await loop.run_in_executor(thread, log.read, self._orders.read_to)
                    if turn % _RETENTION_TURNS == 0:
                        topics = [each.stage.topic for each in self._consumers]
                        self._retentions = await loop.run_in_executor(thread, log.find_retentions, topics)
                except (TransportUnavailable, TransportRefused) as error:
                    if self._problem != str(error):
                        _LOG.warning("orders for receiver %s cannot be read: %s", self.name, error)
                    self._problem = str(error)
                else:
                    self._problem = None
                    self._execute(slots, probes=self._orders.read(found, end))
                await asyncio.sleep(_ORDERS_SECONDS)
        finally:
            thread.submit(log.close)
            thread.shutdown(wait=False)

    def _execute(self, slots: CallSlots, *, probes: bool) -> None:
        before, pause = self._gate.gate.pause, self._orders.pause
        if pause != before:
            _LOG.warning("receiver %s %s", self.name, f"is {pause.text}" if pause is not None else "gets calls again")
        self._gate.follow(pause)
        if probes and self._gate.is_shut:
            self._gate.probe_now(slots.now())
            for each in self._consumers:
                each.retry_first()
        slots.wake()

    def report(self) -> DirectReport:
        """Return how far each partition of this worker is."""
        gate, now = self._gate.gate, self._clock.now()
        ago = round(asyncio.get_running_loop().time() * 1_000)
        problem = next((each.problem for each in self._consumers if each.problem is not None), self._problem)
        partitions = [report for each in self._consumers for report in _partitions_of(each)]
        self._trends = {each.partition: self._trends.get(each.partition, BacklogTrend()) for each in partitions}
        return DirectReport(
            self.name,
            gate.reason if self._gate.is_shut else None,
            now + gate.since - ago,
            now + gate.probe_at - ago,
            problem,
            tuple(self._with_backlog(each) for each in partitions),
            (*(note for each in self._consumers for note in each.notes), *self._retention_notes(partitions)),
            self._gate.gate.pause,
        )

    def _retention_notes(self, partitions: Sequence[PartitionReport]) -> list[str]:
        now, kept = self._clock.now(), self._retentions
        notes = (find_retention_note(each.partition, each.oldest_at, kept.get(each.partition.topic), now) for each in partitions)
        return [each for each in notes if each is not None]

    def _with_backlog(self, each: PartitionReport) -> PartitionReport:
        if each.problem is not None:
            return each
        count = max(0, each.end - each.position)
        rate = self._trends[each.partition].see(count, self._clock.passed())
        oldest_at = None if each.oldest_at is None else instant_text(each.oldest_at)
        return msgspec.structs.replace(each, backlog=make_backlog(count, oldest_at, rate))

    async def _made(self, threads: Executor) -> Mapping[str, str] | None:
        """Make the topics, however long that takes; return those of former intervals. None: it is to stop."""
        while not self._is_stopping.is_set():
            try:
                former = await asyncio.get_running_loop().run_in_executor(threads, self._topics.make)
            except (TransportUnavailable, TransportRefused) as error:
                if self._problem != str(error):
                    _LOG.warning("receiver %s is not delivered to: %s", self.name, error)
                self._problem = str(error)
                try:
                    await asyncio.wait_for(self._is_stopping.wait(), _PAUSE_SECONDS)
                except TimeoutError:
                    continue
            else:
                self._problem = None
                for topic in former:
                    _LOG.warning("topic %s has no interval any more: what it holds is delivered at once", topic)
                return former
        return None


def _partitions_of(consumer: StageConsumer) -> list[PartitionReport]:
    refused = [PartitionReport(name, problem=why) for name, why in consumer.refused.items()]
    found, now = [], round(asyncio.get_running_loop().time() * 1_000)
    for state, end in consumer.partitions:
        blocked = [
            BlockedRecord(each.way.origin, each.key, each.blocked_since or 0, each.way.attempts + each.attempts, each.error or "")
            for each in state.blocked(_MAX_BLOCKED)
        ]
        found.append(
            PartitionReport(
                partition=state.partition,
                position=state.position,
                end=end,
                open_count=state.open_count,
                blocked_count=state.blocked_count,
                blocked=tuple(blocked),
                oldest_at=state.oldest_at,
                skips_all=state.skips_all,
                # A retry topic that waits for its time is as it should be, however much lies in it.
                pause=None if waits_for_its_time(consumer.stage, state, now) else state.pause,
            )
        )
    return sorted([*refused, *found], key=lambda each: each.partition)
