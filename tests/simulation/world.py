"""One to three whole workers over one fake broker and one storage, in one thread, by one seed.

A worker may stand still in the middle of any step while the others go on, is thrown out of the group meanwhile, and goes on as a
zombie; it may be killed where it stands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from random import Random
from typing import Any
from unittest.mock import patch

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata, TopicPartition
from service_under_test import TOPIC, FakeClock, Plan, Teller
from simulation.fake_broker import FakeBroker
from simulation.fake_clients import FakeAdmin, FakeConsumer, FakeProducer
from simulation.misfortunes import Misfortunes
from simulation.reading import to_stored
from simulation.shared_storage import Backup, SharedStorage
from simulation.worker import DEAD_LETTERS, NOTIFICATIONS, Worker

from connectors.kafka_bounded import Bounded
from connectors.kafka_producer import TransactionalProducer
from domain.record import Partition
from guardian.messages import Survey
from storage.none_memory import Memory

_CLOCKED = ("kafka_transport", "kafka_log", "kafka_publisher", "kafka_producer", "kafka_topics")
INPUT = tuple(TopicPartition(TOPIC, number) for number in range(2))


class World:
    """`coming` are lines that have not been sent yet, by partition; `wrong` is the first invariant that broke.

    `turn` counts the stretches of work. `ahead_characters` are those that a position's metadata has for what is done beyond it.
    """

    def __init__(self, seed: int, plan: Plan, workers: int, ahead_characters: int | None = None) -> None:
        self.random = Random(f"world {seed}")
        self.misfortunes = Misfortunes(self.random)
        self.plan = plan
        self.ahead_characters = ahead_characters
        self.clock = FakeClock()
        self.handler = Teller(self.clock)
        self.broker = FakeBroker({TOPIC: len(INPUT), NOTIFICATIONS: 2, DEAD_LETTERS: 1}, TOPIC)
        self.broker.watch = self._see_that_it_goes_forward
        self.memory = Memory()
        self.coming: deque[tuple[int, bytes]] = deque()
        self.workers = [Worker(self, slot) for slot in range(workers)]
        self.turn = 0
        self.wrong: str | None = None
        self._backup = Backup(self.memory)
        self._tokens = count(1)
        self._gaps = Random(f"gaps {seed}")
        self._looks = 0
        self._at_work = self.workers[0]

    def token(self) -> str:
        return f"token-{next(self._tokens)}"

    # What happens

    def live(self, turns: int) -> None:
        """So many stretches of work of anybody, and what befalls them."""
        self.misfortunes.armed = True
        for _ in range(turns):
            self.turn += 1
            self._befall()
            if ready := [each for each in self.workers if not each.stands_still]:
                self._let_work(self.random.choice(ready))
        self.misfortunes.armed = False

    def calm(self, rounds: int = 400) -> str | None:
        """All that is coming has come, no more misfortunes: all go on until nothing moves. Why it does not end, if so."""
        quiet = 0
        self.send([self.coming.popleft() for _ in range(len(self.coming))])
        for _ in range(rounds):
            moved = [self._let_work(worker) for worker in self.workers]
            self._bury_the_dead()
            quiet = 0 if any(moved) or not self._is_all_done() else quiet + 1
            if quiet == 2:
                return None
        return f"not quiet after {rounds} rounds: {[each.words() for each in self.workers]}"

    def kill_all(self) -> None:
        """And nobody comes back before the group has noticed."""
        for each in self.workers:
            each.die()
        self._bury_the_dead()

    def send(self, lines: Sequence[tuple[int, bytes]]) -> None:
        """To these partitions; now and then an offset is left out, as a transaction's marker or a compaction does."""
        for number, line in lines:
            self.broker.append(INPUT[number], to_stored(line))
            if self._gaps.random() < 0.1:
                self.broker.append(INPUT[number], None)

    def throw_out(self, member: str) -> None:
        """The group does not hear of this one for a session."""
        if member in self.broker.group.members:
            self.broker.group.remove(member)
            self.misfortunes.note("somebody is thrown out of the group")

    def keep_backup(self) -> None:
        """What `forget` will go back to."""
        self._backup = Backup(self.memory)

    def forget(self) -> None:
        """The storage goes back to its backup, in all partitions or in one."""
        partitions = [Partition(*each) for each in INPUT]
        partitions = self.random.choice((partitions, partitions[:1], partitions[1:]))
        self._backup.restore(self.memory, partitions)
        self.misfortunes.note(f"the storage forgets {', '.join(map(str, partitions))}")

    def reset_group(self) -> None:
        """An operator sets the group's positions, or deletes them. That is possible only when nobody is in the group."""
        self.kill_all()
        for each in INPUT:
            end = OffsetAndMetadata(self.broker.stable_end(each), "", -1)
            self.broker.reset(each, self.random.choice((None, OffsetAndMetadata(0, "", -1), end)))
        self.misfortunes.note("the group is reset")

    def expire(self) -> None:
        """The storage forgets what may be forgotten."""
        SharedStorage(self.memory, self.token, self.plan.retention_ms).expire(self.clock.now())

    def waiting(self) -> list[str]:
        """The units in which something waits, as the workers know them."""
        surveys = [each.actors.survey(Survey(oldest=10)) for each in self.workers if each.actors is not None]
        return [key.unit for survey in surveys for key, _ in survey.oldest]

    def _let_work(self, worker: Worker) -> bool:
        self._at_work = worker
        return worker.go_on()

    def _befall(self) -> None:
        """What happens between two stretches of anybody."""
        drawn = self.random.random
        if drawn() < 0.1:
            self.misfortunes.let_one_arrive()
        if drawn() < self.misfortunes.dangers.eviction and self.broker.group.members:
            self.throw_out(self.random.choice(sorted(self.broker.group.members)))
        if drawn() < 0.03 and self.broker.transactions:
            self.broker.time_out(self.random.choice(sorted(self.broker.transactions)))
        if drawn() < 0.3 and (consumer := self.random.choice(self.workers).consumer) is not None:
            consumer.hear()
        if drawn() < 0.3 and self.coming:
            self.send([self.coming.popleft()])
        standing = [each for each in self.workers if each.stands_still]
        if standing and drawn() < self.misfortunes.dangers.crash:
            worker = self.random.choice(standing)
            self.misfortunes.crash(worker.slot, "where it stands")
            worker.die()

    def _bury_the_dead(self) -> None:
        """Those that are dead are missed by the group, their transactions time out."""
        ours = {each.member for each in self.workers}
        for name in sorted(self.broker.group.members.keys() - ours):
            self.broker.group.remove(name)
        for name, transaction in sorted(self.broker.transactions.items()):
            if transaction.is_open:
                self.broker.time_out(name)

    def _is_all_done(self) -> bool:
        held = [each for worker in self.workers for each in worker.held()]
        return (
            not any(worker.is_midway for worker in self.workers)
            and len(held) == len(INPUT)
            and not self.broker.group.is_rebalancing
            and all(each.room == 0 or each.read_to == self.broker.stable_end(TopicPartition(*each.partition)) for each in held)
            and not any(each.unpublished for each in held)
        )

    def _see_that_it_goes_forward(self, at: TopicPartition, before: OffsetAndMetadata | None, after: OffsetAndMetadata) -> None:
        if before is not None and after.offset < before.offset:
            self.wrong = self.wrong or f"the position of {at} went back from {before.offset} to {after.offset}"

    # How the clients are made

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Within it, kafka-python's clients are the fakes and time is the world's."""
        with ExitStack() as stack:
            for module in ("kafka_member", "kafka_log", "kafka_producer", "kafka_topics"):
                stack.enter_context(patch(f"connectors.{module}.make_client", self._make_client))
            for module in _CLOCKED:
                stack.enter_context(patch(f"connectors.{module}.monotonic", self._monotonic))
            stack.enter_context(patch("connectors.kafka_publisher._FENCES", 1_000_000))
            stack.enter_context(patch.object(Bounded, "call", lambda _, call, __: call()))
            stack.enter_context(patch.object(TransactionalProducer, "discard", lambda _: None))
            yield

    def _monotonic(self) -> float:
        """Half a second goes by with each look at it: whoever waits by it comes to an end."""
        self._looks += 1
        return self._looks / 2

    def _make_client(self, _: str, make: type, options: Mapping[str, Any]) -> Any:
        worker = self._at_work
        if issubclass(make, KafkaProducer):
            return FakeProducer(self.broker, worker, options["transactional_id"])
        if issubclass(make, KafkaConsumer):
            consumer = FakeConsumer(self.broker, worker, options)
            if make is not KafkaConsumer:
                worker.consumer = consumer
            return consumer
        assert issubclass(make, KafkaAdminClient)
        return FakeAdmin(self.broker)
