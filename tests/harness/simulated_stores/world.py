"""One to three store workers on one simulated broker, in one thread, by one seed.

A worker may stand still in the middle of any step while the others go on, be removed from the group, and come back as a zombie;
or be killed where it stands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import msgspec
from harness.simulated_stores.broker import FakeReader, StoreBroker
from harness.simulated_stores.commands import FINALS, PARTITIONS, Sent, drawn_commands
from harness.simulated_stores.judge import COMMANDS, LETTERS, REPORTS, VALUES, Judge
from harness.simulated_stores.worker import StoreWorker
from harness.wild_clock import TRUSTED_MS, WildClock
from kafka import KafkaConsumer
from kafka.structs import TopicPartition
from simulation.fakes.broker import Entry
from simulation.fakes.patching import fake_kafka
from simulation.injected_faults import InjectedFaults

from notification_service.aggregation.files import ValuesFile
from notification_service.aggregation.payments.payments_of_message import PaymentsSettings

_NEVER_MS = 365 * 86_400_000
_HOUR_MS = 3_600_000
_STEPS_MS = (1, 500, 3_000, 9_000)
_PER_SECOND = 10
_BEGIN_MS = 1_700_000_000_000
_ABORTED = 0.3


class StorePlan(msgspec.Struct, frozen=True):
    """`payments` are the settings of the aggregate. With `has_instants` time passes, in `long_steps` of half a day.

    At most `at_once` commands are applied in a turn, and a takeover reads for `read_seconds` at once. `hand_overs` is how likely
    a worker is away for a while, and comes back.
    """

    payments: PaymentsSettings
    has_instants: bool
    workers: int
    at_once: int
    note_seconds: float
    hand_overs: float
    long_steps: float
    read_seconds: float

    @classmethod
    def drawn(cls, random: Random) -> StorePlan:
        has_instants = random.random() < 0.6
        settings = PaymentsSettings(FINALS, _NEVER_MS, _NEVER_MS, _NEVER_MS, _NEVER_MS)
        if has_instants:
            settings = PaymentsSettings(FINALS, 4_000, random.choice((10_000, 40_000)), random.choice((20_000, _HOUR_MS)), 10_000)
        return cls(
            settings,
            has_instants,
            workers=random.choice((1, 2, 2, 3)),
            at_once=random.choice((1, 3, 1_000)),
            note_seconds=random.choice((0.0, 1.0, 5.0)),
            hand_overs=random.choice((0.0, 0.03)),
            long_steps=random.choice((0.0, 0.0, 0.05)),
            read_seconds=random.choice((0.3, 5.0)),
        )


class World:
    """`coming` are commands that were not sent yet. `turn` counts the stretches of work."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = Random(f"stores {seed}")
        self.chance_of_copies = Random(f"copies {seed}")
        self.directory = directory
        self.plan = StorePlan.drawn(self.random)
        self.injected_faults = InjectedFaults(self.random)
        self.clock = WildClock(Random(f"clock {seed}"), _BEGIN_MS, may_be_wild=self.plan.has_instants)
        topics = {COMMANDS: PARTITIONS, VALUES: PARTITIONS, REPORTS: 1, LETTERS: 1}
        self.broker = StoreBroker(topics, COMMANDS, self.random, self.clock.now)
        self.judge = Judge(self.broker, self.clock.now)
        self.coming = deque(drawn_commands(self.random))
        self.workers = [StoreWorker(self, slot) for slot in range(self.plan.workers)]
        self.turn = 0
        self._at_work = self.workers[0]
        self._open: dict[int, list[tuple[Sent, Entry]]] = {}
        self._returns: dict[int, StoreWorker] = {}

    def slots(self) -> list[StoreWorker]:
        return self.workers

    def live(self, turns: int) -> None:
        """Run so many stretches of work of any worker, with faults."""
        self.injected_faults.armed = self.broker.has_late_markers = True
        for _ in range(turns):
            self.turn += 1
            self._befall()
            self.turn = max(self.turn, min(each.stands_until for each in self.workers))
            self._let_work(self.random.choice([each for each in self.workers if not each.stands_still]))
            if self.judge.problem is not None:
                break
        self.injected_faults.armed = self.broker.has_late_markers = False

    def calm(self, rounds: int = 150) -> None:
        """Decide what is open, and let all workers go on without faults until all commands are applied."""
        for number in list(self._open):
            self._decide(number)
        self._let_clock_be_trusted()
        quiet = 0
        for _ in range(rounds):
            self.broker.let_all_markers_arrive()
            moved = [self._let_work(each) for each in self.workers]
            self._reap_the_dead()
            if self.judge.problem is not None:
                return
            quiet = 0 if any(moved) or not self._is_all_done() else quiet + 1
            if quiet == 3:
                self._judge_dues()
                return
        states = [(each.slot, each.read_to(), each.runner and each.runner._problem) for each in self.workers]
        self.judge.blame(f"not quiet after {rounds} rounds: {states}, positions {self.judge.positions}")

    def _let_clock_be_trusted(self) -> None:
        """From now on the clock is right; let so much time pass that each worker trusts it."""
        self.clock.calm_down()
        if self.clock.is_wild:
            for each in self.workers:
                each.clock.now()
            self.clock.pass_time(TRUSTED_MS + 1_000)

    def send_all(self) -> None:
        while self.coming:
            self._send(self.coming.popleft())

    def throw_out(self, member: str) -> None:
        if member in self.broker.group.members:
            self.broker.group.remove(member)
            self.injected_faults.note("a worker is thrown out of the group")

    def kill_all(self) -> None:
        for each in self.workers:
            each.die()
        self._reap_the_dead()

    def _befall(self) -> None:
        drawn = self.random.random
        if drawn() < 0.1:
            self.injected_faults.let_one_arrive()
        if drawn() < 0.1:
            self.broker.let_marker_arrive()
        if drawn() < self.injected_faults.dangers.eviction and self.broker.group.members:
            self.throw_out(self.random.choice(sorted(self.broker.group.members)))
        self._hand_over()
        if drawn() < 0.03 and not self.broker.group.is_rebalancing and self.broker.group.members:
            self.broker.group.is_rebalancing = True
            self.injected_faults.note("the group rebalances")
        if drawn() < 0.03 and self.broker.transactions:
            self.broker.time_out(self.random.choice(sorted(self.broker.transactions)))
        self._move_data()
        self._let_time_pass()
        if changed := self.clock.change():
            self.injected_faults.note(changed)
        if drawn() < 0.3 and (consumer := self.random.choice(self.workers).consumer) is not None:
            consumer.hear()
        standing = [each for each in self.workers if each.stands_still]
        if standing and drawn() < self.injected_faults.dangers.crash:
            worker = self.random.choice(standing)
            self.injected_faults.crash(worker.slot, "where it stands")
            worker.die()

    def _move_data(self) -> None:
        """Let commands come, transactions of the first hop end, and the brokers compact values."""
        drawn = self.random.random
        if drawn() < 0.5 and self.coming:
            self._send(self.coming.popleft())
        if drawn() < 0.05:
            self._decide(self.random.randrange(PARTITIONS))
        if drawn() < 0.05:
            self.broker.compact(TopicPartition(VALUES, self.random.randrange(PARTITIONS)), 24 * _HOUR_MS)

    def _hand_over(self) -> None:
        """Now and then a worker is away for a while, others have its partitions meanwhile, and it gets them back from those."""
        if self.turn in self._returns:
            worker = self._returns.pop(self.turn)
            for each in self.workers:
                if each is not worker:
                    self.throw_out(each.member)
                    each.stands_until = max(each.stands_until, self.turn + self.random.randint(4, 10))
        is_hurt = bool(self.broker.late_markers)
        if self.random.random() < (0.1 if is_hurt else self.plan.hand_overs) and len(self.workers) > 1:
            worker = self.random.choice(self.workers)
            if not worker.stands_still:
                self.injected_faults.note(f"worker {worker.slot} is away for a while")
                self.throw_out(worker.member)
                worker.stands_until = self.turn + self.random.randint(5, 15)
                self._returns[worker.stands_until] = worker

    def _let_time_pass(self) -> None:
        drawn = self.random.random()
        if not self.plan.has_instants:
            self.clock.pass_time(1)
        elif drawn < 0.25:
            self.clock.pass_time(self.random.choice(_STEPS_MS))
        elif drawn < 0.25 + self.plan.long_steps:
            self.clock.pass_time(13 * _HOUR_MS)

    def _send(self, sent: Sent) -> None:
        """Send a command, in a transaction of the first hop or outside. What is aborted is sent again."""
        name = TopicPartition(COMMANDS, sent.partition)
        if sent.partition in self._open or self.random.random() < 0.1:
            self._open.setdefault(sent.partition, []).append((sent, self.broker.append_undecided(name, sent.record)))
        else:
            self.broker.append(name, sent.record)
        if self.random.random() < 0.1:
            self._decide(sent.partition)

    def _decide(self, number: int) -> None:
        opened = self._open.pop(number, None)
        if opened is None:
            return
        is_commit = self.random.random() > _ABORTED
        self.broker.decide(TopicPartition(COMMANDS, number), [entry for _, entry in opened], is_commit=is_commit)
        for sent, _ in () if is_commit else opened:
            self.broker.append(TopicPartition(COMMANDS, number), sent.record)

    def _let_work(self, worker: StoreWorker) -> bool:
        self._at_work = worker
        return worker.go_on()

    def _reap_the_dead(self) -> None:
        """Remove dead workers from the group, and time out what they left open."""
        ours = {each.member for each in self.workers}
        for name in sorted(self.broker.group.members.keys() - ours):
            self.broker.group.remove(name)
        for name, transaction in sorted(self.broker.transactions.items()):
            if transaction.is_open:
                self.broker.time_out(name)

    def _is_all_done(self) -> bool:
        ends = {number: self.broker.stable_end(TopicPartition(COMMANDS, number)) for number in range(PARTITIONS)}
        owned = [item for each in self.workers for item in each.read_to().items()]
        is_idle = not any(each.is_midway for each in self.workers) and not self.broker.group.is_rebalancing
        return is_idle and len(owned) == PARTITIONS and dict(owned) == ends

    def _judge_dues(self) -> None:
        late = [
            key for values in self.judge.values for key, (_, due) in values.items() if due is not None and due <= self.clock.now()
        ]
        if late:
            self.judge.blame(f"{late} were due, and nothing came of it")

    def patched(self) -> AbstractContextManager[None]:
        """Replace kafka-python's clients, the clocks and the writing of copies, within the context."""
        return _patched(self)

    @property
    def at_work(self) -> StoreWorker:
        return self._at_work


@contextmanager
def _patched(world: World) -> Iterator[None]:
    looks, tokens, write = count(), count(), ValuesFile.writing

    def make_client(_: str, make: type, options: Mapping[str, Any]) -> FakeReader:
        assert issubclass(make, KafkaConsumer)
        return FakeReader(world.broker, world.at_work, options)

    def monotonic() -> float:
        return next(looks) / _PER_SECOND

    def writing(file: ValuesFile) -> Any:
        return world.at_work.writing(file, write(file))

    class Token:
        hex = property(lambda _: f"token-{next(tokens):06}")

    with ExitStack() as stack, fake_kafka(world.broker, lambda: world.at_work):
        for name, value in {
            "notification_service.connectors.kafka.topic_reader.make_client": make_client,
            "notification_service.connectors.kafka.topic_reader.monotonic": monotonic,
            "notification_service.connectors.kafka.topic_reader._AT_ONCE": 5,
            "notification_service.aggregation.kafka_store.monotonic": monotonic,
            "notification_service.aggregation.kafka_store._NOTE_SECONDS": world.plan.note_seconds,
            "notification_service.aggregation.kafka_store.uuid4": Token,
            "notification_service.aggregation.kafka_store._READ_SECONDS": world.plan.read_seconds,
            "notification_service.aggregation.runner._AT_ONCE": world.plan.at_once,
            "notification_service.aggregation.files._BUSY_SECONDS": 0.0,
            "notification_service.aggregation.files.ValuesFile.writing": writing,
        }.items():
            stack.enter_context(patch(name, value))
        yield
