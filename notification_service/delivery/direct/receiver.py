"""A receiver that is delivered to straight from topics: its stages, which share calls and gate."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial

import msgspec

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.delivery.caller import Caller, CallTally, Network
from notification_service.delivery.core.backlog import Backlog, BacklogTrend, make_backlog
from notification_service.delivery.direct.consumer import StageConsumer
from notification_service.delivery.direct.core.decision import Stage, former_stage
from notification_service.delivery.direct.core.partition import waits_for_its_time
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.owned import StageClients
from notification_service.delivery.direct.stage_calls import CallSlots
from notification_service.delivery.settings import Receiver
from resequencer.clock import Instant, SteadyClock, instant_text
from resequencer.record import Origin, Partition

_LOG = logging.getLogger("resequencer.delivery")
_PAUSE_SECONDS = 2.0
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
    what does not stop it, but should be known.
    """

    receiver: str
    shut_because: str | None
    shut_since: Instant
    probe_at: Instant
    problem: str | None
    partitions: tuple[PartitionReport, ...]
    notes: tuple[str, ...] = ()


class DirectReceiver:
    """`make_topics` makes the topics that are missing; `open_clients` returns the clients of a stage, unconnected.

    `make_topics` returns the retry topics that hold unread records though there is no interval for them any more, each with its
    group: what they hold is delivered, too.
    """

    def __init__(
        self,
        name: str,
        receiver: Receiver,
        stages: Sequence[Stage],
        make_topics: Callable[[], Mapping[str, str]],
        open_clients: Callable[[Stage], StageClients],
        clock: SteadyClock,
        forbidden: Sequence[Network] = (),
    ) -> None:
        self.name, self.tally = name, CallTally()
        self._receiver, self._stages, self._forbidden = receiver, stages, forbidden
        self._make_topics, self._open_clients, self._clock = make_topics, open_clients, clock
        self._gate = SharedGate(receiver)
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
        self._consumers = [StageConsumer(each, partial(self._open_clients, each), caller, slots, self._clock) for each in stages]
        try:
            async with asyncio.TaskGroup() as group:
                for each in self._consumers:
                    group.create_task(each.run())
                await self._is_stopping.wait()
                for each in self._consumers:
                    each.stop()
        finally:
            await caller.close()

    def stop(self) -> None:
        self._is_stopping.set()

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
            tuple(note for each in self._consumers for note in each.notes),
        )

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
                former = await asyncio.get_running_loop().run_in_executor(threads, self._make_topics)
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
