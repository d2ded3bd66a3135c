"""Workers of direct delivery in simulated time, in one thread: a seed says who dies, who is cut off, and what is answered.

Time goes on when all wait. What a worker does in its transport's thread happens a little later, and its answer comes later
still, so a kill finds commits that are made and not known, and others that are not made.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

import pytest

from guardian.headers import texts_of
from guardian.ports import (
    Channel,
    NotPublished,
    OutputRecord,
    PartitionOutput,
    Polled,
    Position,
    PublishRefused,
    TransportRefused,
    TransportUnavailable,
)
from notification_service.delivery.caller import Call
from notification_service.delivery.core.answers import Answer, NoAnswer, Trouble
from notification_service.delivery.direct.consumer import StageConsumer
from notification_service.delivery.direct.core.decision import OpenRecord, Stage, stages_of
from notification_service.delivery.direct.core.position_metadata import find_metadata
from notification_service.delivery.direct.core.shared_gate import SharedGate
from notification_service.delivery.direct.owned import StageClients
from notification_service.delivery.direct.stage_calls import CallSlots
from notification_service.delivery.settings import Receiver
from resequencer.record import Origin, Partition, Record
from tests.notification_service.delivery.direct.fakes import NOW, OK, FakeTopic, FakeTransport
from tests.notification_service.delivery.direct.simulated_loop import Broken, SimulatedLoop, pass_time

SESSION_MS = 6_000
KEYS, PARTITIONS = 12, 2
_FAULTS_SECONDS, _MAX_SECONDS = 40.0, 1_200.0
_TO_KNOW_SECONDS = 0.1
Reply = Answer | NoAnswer


class SimulatedTopic(FakeTopic):
    """A topic and its group. A member that is not heard of for a session's time loses its partitions, as after a kill.

    Else it loses them when it asks, as members of a cooperative group do.
    """

    def __init__(self, loop: SimulatedLoop, name: str, next_topic: SimulatedTopic | None) -> None:
        super().__init__(name, PARTITIONS)
        self._loop, self._next = loop, next_topic
        self.heard: dict[SimulatedTransport, float] = {}
        self.owners: dict[Partition, SimulatedTransport] = {}
        self.since: dict[Partition, float] = {}
        self.left: set[str] = set()
        """The ids of the records that have left the topic, moved or as dead letters."""

    def hear(self, member: SimulatedTransport, *, lets_go: bool = False) -> None:
        self.heard[member] = self._loop.time()
        for each in [each for each, at in self.heard.items() if self._loop.time() - at > SESSION_MS / 1_000]:
            del self.heard[each]
        for name in self.records:
            owner = self.owners.get(name)
            wanted = sorted(self.heard, key=lambda each: each.number)[name.number % len(self.heard)]
            if owner is None or owner not in self.heard or (lets_go and owner is member is not wanted):
                self.owners[name], self.since[name] = wanted, self._loop.time()
                if owner is not None:
                    owner.lost.add(name)

    def leave(self, member: SimulatedTransport) -> None:
        self.heard.pop(member, None)

    def store(self, member: SimulatedTransport, outputs: Sequence[PartitionOutput]) -> None:
        for each in outputs:
            if self.owners.get(each.partition) is not member or each.partition in member.lost:
                raise PublishRefused(f"{each.partition} is another worker's")
        for each in outputs:
            if member.unknown.get(each.partition) is each:
                continue  # What was published without an answer is not published twice.
            self.positions[each.partition] = each.position
            self.published += each.records
            for record in each.records:
                self._move(each.partition, record)

    def _move(self, partition: Partition, record: OutputRecord) -> None:
        id_ = texts_of(record.headers)["notification-id"]
        if id_ in self.left:
            raise Broken(f"{id_} has left {self.name} twice")
        self.left.add(id_)
        if record.channel is Channel.NOTIFICATIONS:
            assert self._next is not None
            name = Partition(self._next.name, partition.number)
            origin = Origin(name, self._next.end(name))
            self._next.records[name].append(Record(origin, record.value, record.key, record.headers))

    def is_lost(self, worker: SimulatedWorker, partition: Partition) -> bool:
        """Return whether another worker owns the partition, and this one has had the time to know."""
        return self.owners[partition].worker is not worker and self._loop.time() - self.since[partition] > _TO_KNOW_SECONDS

    def is_committed(self, origin: Origin) -> bool:
        """Return whether the position says that the record is done."""
        position: Position | None = self.positions.get(origin.partition)
        if position is None:
            return False
        kept = find_metadata(position.offset, position.metadata)
        assert kept is not None
        return origin.offset < position.offset or kept.done.is_done(origin.offset)


class SimulatedTransport(FakeTransport):
    """A member of the group. While it is cut off nothing answers; when its worker was killed it says nothing more."""

    _numbers = 0

    def __init__(self, loop: SimulatedLoop, topic: SimulatedTopic, worker: SimulatedWorker) -> None:
        super().__init__(topic)
        self._loop, self._group, self.worker = loop, topic, worker
        SimulatedTransport._numbers += 1
        self.number = SimulatedTransport._numbers
        self.lost: set[Partition] = set()
        self.unknown: dict[Partition, PartitionOutput] = {}
        """What was published without an answer."""

    def _reach(self) -> None:
        if self.worker.is_cut_off:
            self._loop.lasts = 0.5
            raise TransportUnavailable("no broker answers")
        self._group.hear(self)

    def assignment(self) -> Collection[Partition]:
        if not self.worker.is_cut_off:
            self._group.hear(self, lets_go=True)
        lost, self.lost = self.lost, set()
        for each in lost:
            self._at.pop(each, None)
        return [name for name, owner in self._group.owners.items() if owner is self and name not in lost]

    def position(self, partition: Partition) -> Position | None:
        self._reach()
        return super().position(partition)

    def poll(self, max_records: int, timeout_ms: int, resting: Collection[Partition] = ()) -> Polled:
        self._reach()
        polled = super().poll(max_records, 0, [*resting, *self.lost])
        self._loop.lasts = 0.0 if polled.records else timeout_ms / 1_000
        return polled

    def publish(self, outputs: Sequence[PartitionOutput]) -> None:
        self._reach()
        # What happened to a commit without an answer is found out before anything else is tried.
        trouble = None if self.unknown else self.worker.find_trouble()
        has_left = trouble is None or not isinstance(trouble, NotPublished | TransportRefused)
        if has_left:
            self._group.store(self, outputs)
            self.unknown = {} if trouble is None else {each.partition: each for each in outputs}
        if trouble is not None:
            raise trouble

    def close(self) -> None:
        if not self.worker.is_killed:
            self._group.leave(self)


class Sent(NamedTuple):
    """A call that has begun; `worker` made it."""

    worker: SimulatedWorker
    record: OpenRecord


class SimulatedReceiver:
    """Answers by the seed, and checks each call: it may not be for what is known as done, nor overtake an open record."""

    def __init__(self, loop: SimulatedLoop, chance: Random) -> None:
        self._loop, self._chance = loop, chance
        self.topics: dict[str, SimulatedTopic] = {}
        self.taken: Counter[str] = Counter()
        self.order: defaultdict[str, list[str]] = defaultdict(list)
        self.failing: dict[str, int] = {}
        """How often the call for an id fails; poison fails always."""
        self.is_asleep: Reply | None = None
        self.is_fast = False

    async def answer(self, sent: Sent) -> Reply:
        record = sent.record
        self._check(sent.worker, record)
        await pass_time(0.001 if self.is_fast else self._chance.choice([0.02, 0.1, 0.5]))
        if self.is_asleep is not None:
            return self.is_asleep
        id_ = record.notification_id
        if self.failing.get(id_, 0) > 0:
            self.failing[id_] -= 1
            return self._chance.choice([Answer(500), Answer(502), NoAnswer(Trouble.BROKEN, "no answer")])
        self.taken[id_] += 1
        return OK

    def _check(self, worker: SimulatedWorker, record: OpenRecord) -> None:
        origin = record.record.origin
        topic = self.topics[origin.partition.topic]
        if topic.is_lost(worker, origin.partition):
            raise Broken(f"{origin} is called by a worker that has lost the partition")
        if topic.is_committed(origin):
            raise Broken(f"{origin} is called, though a position says that it is done")
        if topic.name != "T":
            return
        for each in topic.records[origin.partition]:
            if each.origin.offset >= origin.offset:
                return
            id_ = texts_of(each.headers)["notification-id"]
            if each.key == record.record.key and not self.taken[id_] and id_ not in topic.left:
                raise Broken(f"{record.notification_id} overtakes {id_}")


class SimulatedWorker:
    """All stages of one worker."""

    def __init__(
        self, loop: SimulatedLoop, stages: Sequence[Stage], topics: dict[str, SimulatedTopic], receiver: SimulatedReceiver
    ) -> None:
        self._loop, self._receiver = loop, receiver
        self.is_cut_off = self.is_killed = False
        self.troubles: list[Exception] = []
        slots = CallSlots(SharedGate(stages[0].receiver))
        self.consumers = []
        for stage in stages:
            if stage.topic in topics:

                def open_clients(topic: SimulatedTopic = topics[stage.topic]) -> StageClients:
                    return StageClients(SimulatedTransport(loop, topic, self), None, SESSION_MS)

                self.consumers.append(StageConsumer(stage, open_clients, self, slots, self))  # type: ignore[arg-type]
        self.tasks = [loop.create_task(each.run()) for each in self.consumers]

    def now(self) -> int:
        return NOW + self.passed()

    def passed(self) -> int:
        return round(self._loop.time() * 1_000)

    async def call(self, call: Call) -> Reply:
        assert isinstance(call, OpenRecord)
        return await self._receiver.answer(Sent(self, call))

    def find_trouble(self) -> Exception | None:
        """Return what the next commit meets."""
        return self.troubles.pop() if self.troubles else None

    async def kill(self) -> None:
        """End as by kill -9: what is under way in the transport happens, or does not."""
        self.is_killed = True
        for each in self.tasks:
            each.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def stop(self) -> None:
        for each in self.consumers:
            each.stop()
        await asyncio.gather(*self.tasks)


class Run:
    """One simulated run of a seed."""

    def __init__(self, loop: SimulatedLoop, settings: Receiver, seed: int) -> None:
        self._loop, self._chance = loop, Random(seed)
        self._stages = stages_of(settings, "T", "g")
        self._receiver = SimulatedReceiver(loop, self._chance)
        following: SimulatedTopic | None = None
        for stage in reversed([each for each in self._stages if "requeued" not in each.topic]):
            following = SimulatedTopic(loop, stage.topic, following)
            self._receiver.topics[stage.topic] = following
        self.source = self._receiver.topics["T"]
        self.workers: list[SimulatedWorker] = []
        self._ids: list[str] = []
        self._send(100)

    async def live(self) -> None:
        """Let workers deliver under faults, then let all be well, and check what came of it."""
        self._start()
        ends = self._loop.time() + _FAULTS_SECONDS
        while self._loop.time() < ends:
            await pass_time(self._chance.uniform(0.01, 3))
            self._look()
            self._send(self._chance.randrange(40))
            await self._strike()
        self._receiver.is_asleep, self._receiver.is_fast = None, True
        for each in self.workers:
            each.is_cut_off = False
            each.troubles.clear()
        await self._end()

    def _send(self, count: int) -> None:
        chance = self._chance
        for number in range(len(self._ids), len(self._ids) + count):
            key = f"k{number % KEYS}"
            id_ = f"{key}-{number // KEYS}"
            self._ids.append(id_)
            self.source.add(key, id_, number % KEYS % PARTITIONS, gap=chance.choice([0, 0, 0, 1, 40]))
            if chance.random() < 0.15:
                self._receiver.failing[id_] = chance.choice([1, 2, 3, 1_000_000])

    def _start(self) -> None:
        self.workers.append(SimulatedWorker(self._loop, self._stages, self._receiver.topics, self._receiver))

    async def _strike(self) -> None:
        chance = self._chance
        worker = chance.choice(self.workers)
        what = chance.choice(["kill", "stop", "start", "cut off", "join again", "sleep", "wake", "withhold", "refuse", "unknown"])
        if what in ("kill", "stop"):
            self.workers.remove(worker)
            await (worker.stop() if what == "stop" and not worker.is_cut_off else worker.kill())
        if (what == "start" and len(self.workers) < 3) or not self.workers:
            self._start()
        if what in ("cut off", "join again"):
            worker.is_cut_off = what == "cut off"
        if what in ("sleep", "wake"):
            asleep = chance.choice([Answer(503, retry_after_ms=0), Answer(502), Answer(404), Answer(403)])
            self._receiver.is_asleep = asleep if what == "sleep" else None
        troubles = {
            "withhold": NotPublished("nothing was published"),
            "refuse": TransportRefused("T-g-dlq", "the right is missing"),
            "unknown": TransportUnavailable("no answer to the commit"),
        }
        worker.troubles += [troubles[what]] if what in troubles else []

    async def _end(self) -> None:
        """Wait until all is done. Records that are well show that the receiver works, so that poison is judged."""
        until, number = self._loop.time() + _MAX_SECONDS, 0
        while not self._is_done():
            if self._loop.time() > until:
                raise Broken(f"not done: {sorted(set(self._ids) - set(self.ended))[:5]}")
            self.source.add(f"well{number % 3}", f"well{number}", number % PARTITIONS)
            number += 1
            await pass_time(0.5)
            self._look()
            if not self.workers:
                self._start()
        for each in self.workers:
            await each.stop()

    @property
    def ended(self) -> list[str]:
        """The ids that were taken, and of the dead letters."""
        letters = [id_ for each in self._receiver.topics.values() for id_, _ in each.letters]
        return [*self._receiver.taken, *letters]

    def _is_done(self) -> bool:
        return set(self._ids) <= set(self.ended)

    def _look(self) -> None:
        """Raise what has ended a worker."""
        for each in self.workers:
            for task in each.tasks:
                if task.done() and not task.cancelled():
                    task.result()


def simulate(monkeypatch: pytest.MonkeyPatch, settings: Receiver, seed: int) -> Run:
    """Let the workers of a receiver live through what the seed says.

    Raises:
        Broken: A promise did not hold.
    """
    loop = SimulatedLoop(Random(seed))
    monkeypatch.setattr("notification_service.delivery.direct.stage_calls.random", Random(seed))
    run: Run | None = None

    async def body() -> None:
        nonlocal run
        run = Run(loop, settings, seed)
        await run.live()

    loop.run(body)
    assert run is not None
    return run
