"""Topics in memory, and workers of direct delivery on them: their transport and their receiver do what a test says.

All of it happens in simulated time.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from random import Random

from harness.receivers import receiver

from guardian.headers import texts_of
from guardian.ports import (
    Channel,
    OrderBatch,
    OrderRecord,
    OutputRecord,
    PartitionOutput,
    Polled,
    Position,
    TransportRefused,
    TransportStatus,
)
from notification_service.delivery.caller import Call
from notification_service.delivery.core.answers import Answer, NoAnswer
from notification_service.delivery.direct.consumer import StageConsumer
from notification_service.delivery.direct.core.decision import OpenRecord, Stage, stages_of
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.owned import StageClients
from notification_service.delivery.direct.stage_calls import CallSlots
from notification_service.delivery.settings import Receiver
from resequencer.record import Origin, Partition, Record
from tests.notification_service.delivery.direct.simulated_loop import SimulatedLoop, pass_time, running_loop

OK = Answer(201)
NOW = 1_774_740_835_941
Reply = Answer | NoAnswer
Answers = Callable[[str, str], Reply]


class FakeTopic:
    """A topic, the positions of its one group, and what was published with them."""

    def __init__(self, name: str, partitions: int = 1) -> None:
        self.name = name
        self.records: dict[Partition, list[Record]] = {Partition(name, each): [] for each in range(partitions)}
        self.positions: dict[Partition, Position] = {}
        self.published: list[OutputRecord] = []

    def add(self, key: str, id_: str, number: int = 0, gap: int = 0, value: bytes = b"{}", written_at: int = NOW) -> None:
        """Append a record; `gap` is how many offsets are left out before it."""
        name = Partition(self.name, number)
        log = self.records[name]
        offset = (log[-1].origin.offset + 1 if log else 0) + gap
        headers = (("notification-id", id_.encode()),)
        log.append(Record(Origin(name, offset), value, key.encode(), headers, written_at=written_at))

    def end(self, name: Partition) -> int:
        return self.records[name][-1].origin.offset + 1 if self.records[name] else 0

    @property
    def letters(self) -> list[tuple[str, str]]:
        """The id and the reason of each dead letter."""
        found = [texts_of(each.headers) for each in self.published if each.channel is Channel.DEAD_LETTERS]
        return [(each["notification-id"], each["dead-letter-reason"]) for each in found]


class FakeTransport:
    """Raises what a test sets: by `polls` when it polls, by `publishes` when it publishes."""

    def __init__(self, topic: FakeTopic) -> None:
        self._topic = topic
        self._at: dict[Partition, int] = {}
        self.polls: Exception | None = None
        self.publishes: Exception | None = None

    def standing(self) -> TransportStatus:
        return TransportStatus(notes=("a note",))

    def assignment(self) -> Collection[Partition]:
        return list(self._topic.records)

    def position(self, partition: Partition) -> Position | None:
        return self._topic.positions.get(partition)

    def source(self, partition: Partition) -> str:
        return "log"

    def start_offset(self, partition: Partition) -> int:
        return 0

    def end_offset(self, partition: Partition) -> int:
        return self._topic.end(partition)

    def seek(self, partition: Partition, offset: int) -> None:
        self._at[partition] = offset

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        if self.polls is not None:
            raise self.polls
        records, nexts = list[Record](), dict[Partition, int]()
        for name in self._at.keys() - set(resting):
            log = self._topic.records[name]
            first = bisect_left(log, self._at[name], key=lambda each: each.origin.offset)
            if found := log[first : first + max_records - len(records)]:
                records += found
                self._at[name] = nexts[name] = found[-1].origin.offset + 1
        running_loop().lasts = 0.0 if records else min(timeout_ms, 20) / 1_000
        ends = {name: self._topic.end(name) for name in self._at}
        return Polled(tuple(records), nexts, ends, ends)

    def wake(self) -> None:
        """Do nothing: direct delivery wakes no poll."""

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        if self.publishes is not None:
            raise self.publishes
        for each in outputs:
            self._topic.positions[each.partition] = each.position
            self._topic.published += each.records

    def close(self) -> None:
        pass


class FakeOrders:
    """Orders for the first partition, as a test appends them. Their topic has so many `partitions`."""

    def __init__(self) -> None:
        self.given: list[bytes] = []
        self.partitions = 4

    def bounds(self, partition: Partition) -> range:
        self._refuse([partition])
        return range(len(self.given))

    def _refuse(self, wanted: Iterable[Partition]) -> None:
        if any(each.number >= self.partitions for each in wanted):
            raise TransportRefused("the topic of orders", f"it has {self.partitions} partitions")

    def poll(self, next_offsets: Mapping[Partition, int], most: int) -> Mapping[Partition, OrderBatch]:
        self._refuse(next_offsets)
        found = {name: self.given[at : at + most] for name, at in next_offsets.items() if name.number == 0}
        return {
            name: OrderBatch(
                tuple(OrderRecord(next_offsets[name] + at, each) for at, each in enumerate(values)),
                next_offsets[name] + len(values),
            )
            for name, values in found.items()
            if values
        }

    def find_without_outcome(self, partition: Partition) -> Sequence[OrderRecord]:
        raise AssertionError(f"nothing asks for the orders of {partition} so")

    def close(self) -> None:
        pass


class FakeCaller:
    """Answers as `answers` says of a key and an id, after `seconds`; notes each call with its topic and its instant."""

    def __init__(self) -> None:
        self.answers: Answers = lambda _key, _id: OK
        self.seconds: Callable[[str], float] = lambda _id: 0.0
        self.calls: list[tuple[str, str, str, float]] = []
        self.taken: list[str] = []

    async def call(self, call: Call) -> Reply:
        assert isinstance(call, OpenRecord)
        topic = call.record.origin.partition.topic
        self.calls.append((topic, call.key, call.notification_id, running_loop().time()))
        await pass_time(self.seconds(call.notification_id))
        answer = self.answers(call.key, call.notification_id)
        if answer is OK:
            self.taken.append(call.notification_id)
        return answer

    def ids(self) -> list[str]:
        """The ids that were called, each as often as it was."""
        return [each[2] for each in self.calls]


class Workers:
    """Workers of one receiver `keys` of which are HOCON. Its first topic is `T`."""

    def __init__(self, *keys: str, topics: Iterable[FakeTopic] = ()) -> None:
        self.receiver: Receiver = receiver(*keys, is_kafka=True)
        self.stages: tuple[Stage, ...] = stages_of(self.receiver, "T", "g")
        self.topics = {each.name: each for each in topics} or {"T": FakeTopic("T")}
        self.caller = FakeCaller()
        self.orders = FakeOrders()
        self.clock = _Clock()
        self._running: dict[asyncio.Task[None], list[StageConsumer]] = {}

    @property
    def source(self) -> FakeTopic:
        return self.topics["T"]

    def start(self, session_ms: int = 10_000, caller: FakeCaller | None = None) -> Worker:
        """Start a worker that reads the topics that there are."""
        gate = SharedGate(self.receiver)
        slots, transports = CallSlots(gate), dict[str, FakeTransport]()
        consumers = list[StageConsumer]()
        for stage in self.stages:
            if stage.topic in self.topics:

                def open_clients(stage: Stage = stage) -> StageClients:
                    # A new transport has the troubles of the one before.
                    before = transports.get(stage.topic)
                    made = transports[stage.topic] = FakeTransport(self.topics[stage.topic])
                    made.publishes = before and before.publishes
                    return StageClients(made, self.orders if stage.orders else None, session_ms)

                made = caller or self.caller
                consumers.append(StageConsumer(stage, open_clients, made, slots, self.clock))  # type: ignore[arg-type]
        return Worker(consumers, transports, gate)


class Worker:
    """The stages of one worker. `transports` are by topic, as they are now."""

    def __init__(self, stages: Sequence[StageConsumer], transports: dict[str, FakeTransport], gate: SharedGate) -> None:
        self.stages, self.transports, self.gate = stages, transports, gate
        self._tasks = [asyncio.create_task(each.run()) for each in stages]

    @property
    def open_counts(self) -> list[int]:
        return [state.open_count for stage in self.stages for state, _ in stage.partitions]

    async def until(self, question: Callable[[], object], what: str, seconds: float = 600) -> None:
        """Wait while all stages are well, so many seconds of simulated time at most."""
        until = running_loop().time() + seconds
        while not question():
            assert running_loop().time() < until, what
            for each in self._tasks:
                if each.done():
                    each.result()
            await pass_time(0.01)

    async def stop(self) -> None:
        for each in self.stages:
            each.stop()
        await asyncio.gather(*self._tasks)

    async def kill(self) -> None:
        """End without another commit."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def run(test: Callable[[], Awaitable[None]]) -> None:
    """Run a test in simulated time."""
    SimulatedLoop(Random(1)).run(test)


class _Clock:
    """A wall clock that stands, beside the time that passes: `suspended_ms` are those of the machine, and no loop counts them."""

    suspended_ms = 0

    def now(self) -> int:
        return NOW

    def passed(self) -> int:
        return round(running_loop().time() * 1_000) + self.suspended_ms
