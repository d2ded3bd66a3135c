"""Two or three whole workers over one fake broker and one storage, in one thread, by one seed.

A worker's step at a server may be struck: the worker dies, the request or the answer is lost, the request comes late; or the
worker stands still there while the others go on, is thrown out of the group, and comes back as a zombie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

import msgspec
from crash_points import Crash, StruckStorage
from driving import NoChance
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, errors
from kafka.structs import OffsetAndMetadata, TopicPartition
from service_under_test import TOPIC, FakeClock, Plan, Teller
from simulation.fake_broker import FakeBroker, Stored
from simulation.fake_clients import FakeAdmin, FakeConsumer, FakeProducer
from simulation.shared_storage import Backup, SharedStorage

from connectors.kafka_bounded import Bounded
from connectors.kafka_options import ClientOptions
from connectors.kafka_producer import TransactionalProducer
from connectors.kafka_settings import KafkaSettings, KafkaTopics
from connectors.kafka_transport import KafkaTransport
from domain.decoding import DecodingSettings, EnvelopeDecoder
from domain.errors import ResequencerError
from guardian.actors import Actors
from guardian.cycle import Cycle
from guardian.later import Later
from guardian.ownership import CycleSettings, Servers, Tools
from guardian.patience import Patience, PatienceSettings
from resequencer.rules import Rules
from resequencer.strategies.registry import StrategySettings, make_strategy
from storage.none_memory import Memory

Answer = TypeVar("Answer")
NOTIFICATIONS, DEAD_LETTERS = "PAYMENT_STATUS_NOTIFICATION", "IPF_PROCESSING_DATA_DEAD_LETTERS"
TOPICS = KafkaTopics(TOPIC, NOTIFICATIONS, DEAD_LETTERS)
_CLOCKED = ("kafka_transport", "kafka_log", "kafka_publisher", "kafka_producer", "kafka_topics")


class Dangers(msgspec.Struct, frozen=True):
    """How likely each misfortune is at a step."""

    crash: float = 0.0
    lost_request: float = 0.0
    lost_answer: float = 0.0
    pause: float = 0.0

    @classmethod
    def drawn(cls, random: Random) -> Dangers:
        return cls(
            random.choice((0.0, 0.01, 0.04)),
            random.choice((0.0, 0.01, 0.05)),
            random.choice((0.0, 0.01, 0.05)),
            random.choice((0.01, 0.03, 0.1)),
        )


class World:
    """`armed` lets misfortunes happen; `faults` names those that did, in order; `wrong` is the first invariant that broke."""

    def __init__(self, seed: int, plan: Plan, workers: int, storage: str = "shared") -> None:
        self.random = Random(f"world {seed}")
        self.gaps = Random(f"gaps {seed}")
        self.dangers = Dangers.drawn(self.random)
        self.plan = plan
        self.storage = storage
        self.clock = FakeClock()
        self.handler = Teller(self.clock)
        self.broker = FakeBroker({TOPIC: 2, NOTIFICATIONS: 2, DEAD_LETTERS: 1}, TOPIC)
        self.broker.watch = self._see_that_it_goes_forward
        self.memory = Memory()
        self.backup = Backup(self.memory)
        self.tokens = count(1)
        self.workers = [Worker(self, slot) for slot in range(workers)]
        self.running: list[Worker] = []
        self.late: list[Callable[[], object]] = []
        self._looks = 0
        self.armed = False
        self.may_go_back = False
        self.steps = 0
        self.crashes = 0
        self.faults: list[str] = []
        self.wrong: str | None = None

    # What happens

    def live(self, turns: int) -> None:
        """So many turns of workers, and what befalls them."""
        self.armed = True
        for _ in range(turns):
            self._befall()
            self.run(self.random.choice(self.workers))
        self.armed = False

    def run(self, worker: Worker) -> bool:
        """One cycle of a worker, which is started if it is dead; whether anything was committed."""
        if worker in self.running:
            return False
        self.running.append(worker)
        try:
            return worker.run_once()
        except Crash:
            worker.die()
            self.crashes += 1
            return True
        finally:
            self.running.pop()

    def calm(self, rounds: int = 400) -> str | None:
        """No more misfortunes: everybody goes on until nothing moves; why it does not end, if so."""
        quiet = 0
        for _ in range(rounds):
            self._bury_the_dead()
            moved = [self.run(worker) for worker in self.workers]
            quiet = 0 if any(moved) or not self._is_all_done() else quiet + 1
            if quiet == 2:
                return None
        return f"not quiet after {rounds} rounds: {[each.words() for each in self.workers]}"

    def keep_backup(self) -> None:
        """What `forget` will go back to."""
        self.backup = Backup(self.memory)

    def forget(self) -> None:
        """The storage goes back to its backup."""
        self.backup.restore(self.memory)
        self.faults.append(f"{self.steps}: the storage forgets")

    # What a worker meets on its way to a server

    def ask(
        self, worker: Worker, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False
    ) -> Answer:
        if self._strikes(worker, f"before {name}", self.dangers.lost_request):
            if may_come_late and self.random.random() < 0.5:
                self.late.append(call)
            raise failure
        answer = call()
        if self._strikes(worker, f"after {name}", self.dangers.lost_answer):
            raise failure
        return answer

    def _strikes(self, worker: Worker, name: str, lost: float) -> bool:
        if not self.armed:
            return False
        self.steps += 1
        drawn = self.random.random() - self.dangers.crash
        if drawn < 0:
            self.faults.append(f"{self.steps}: worker {worker.slot} dies {name}")
            raise Crash(name)
        if drawn < lost:
            self.faults.append(f"{self.steps}: worker {worker.slot} gets no answer {name}")
            return True
        if drawn < lost + self.dangers.pause and len(self.running) < 3:
            self.faults.append(f"{self.steps}: worker {worker.slot} stands still {name}")
            for _ in range(self.random.randint(1, 8)):
                self._befall()
                self.run(self.random.choice(self.workers))
            self.faults.append(f"{self.steps}: worker {worker.slot} goes on {name}")
        return False

    def _befall(self) -> None:
        """What happens between two steps of anybody."""
        drawn = self.random.random()
        if drawn < 0.1 and self.late:
            self._deliver(self.late.pop(self.random.randrange(len(self.late))))
        elif drawn < 0.2 and self.broker.group.members:
            self.broker.group.remove(self.random.choice(sorted(self.broker.group.members)))
            self.faults.append(f"{self.steps}: somebody is thrown out of the group")
        elif drawn < 0.23 and self.broker.transactions:
            self.broker.time_out(self.random.choice(sorted(self.broker.transactions)))

    def _deliver(self, call: Callable[[], object]) -> None:
        """A request that was given up arrives after all; its answer goes nowhere."""
        self.faults.append(f"{self.steps}: a late request arrives")
        try:
            call()
        except (errors.KafkaError, ResequencerError):
            return

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
        partitions = [each for each in self.broker.logs if each.topic == TOPIC]
        return (
            len(held) == len(partitions)
            and not self.broker.group.is_rebalancing
            and all(each.read_to == self.broker.stable_end(TopicPartition(*each.partition)) for each in held)
            and not any(each.unpublished for each in held)
        )

    def _see_that_it_goes_forward(self, at: TopicPartition, before: OffsetAndMetadata | None, after: OffsetAndMetadata) -> None:
        if before is not None and after.offset < before.offset and not self.may_go_back:
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
        worker = self.running[-1]
        if issubclass(make, KafkaProducer):
            return FakeProducer(self.broker, worker, options["transactional_id"])
        if issubclass(make, KafkaConsumer):
            worker.consumer = FakeConsumer(self.broker, worker)
            return worker.consumer
        assert issubclass(make, KafkaAdminClient)
        return FakeAdmin(self.broker)


class Worker:
    """A worker's slot: whoever dies in it is started again in it."""

    def __init__(self, world: World, slot: int) -> None:
        self._world = world
        self.slot = slot
        self.cycle: Cycle | None = None
        self.consumer: FakeConsumer | None = None
        self._actors: Actors | None = None

    @property
    def member(self) -> str:
        """Its name in the group, empty if it is in none."""
        return self.consumer.group_metadata().member_id if self.cycle is not None and self.consumer is not None else ""

    def run_once(self) -> bool:
        cycle = self.cycle or self._start()
        return cycle.run_once()

    def die(self) -> None:
        """As by `kill -9`: the brokers do not hear of it."""
        if self._actors is not None:
            self._actors.close()
        self.cycle = self.consumer = self._actors = None

    def held(self) -> list[Any]:
        return list(self.cycle.ownership.held.values()) if self.cycle else []

    def words(self) -> str:
        if self.cycle is None:
            return "dead"
        untaken = {str(each): why.reason for each, why in self.cycle.ownership.later.untaken.items()}
        return f"holds {[str(each.partition) for each in self.held()]}, cannot take {untaken}"

    def ask(self, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False) -> Answer:
        return self._world.ask(self, name, call, failure, may_come_late=may_come_late)

    def around(self, name: str, call: Callable[[], Answer], failure: Exception, _: object = None) -> Answer:
        """As the storage's steps are asked for."""
        return self._world.ask(self, name, call, failure, may_come_late=name == "commit")

    def choose(self, count: int) -> int:
        return self._world.random.randrange(count) if self._world.armed else count - 1

    def _start(self) -> Cycle:
        world, plan = self._world, self._world.plan
        strategy = make_strategy(StrategySettings(plan.strategy))
        decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=strategy.needs_sequence))
        settings = KafkaSettings.make(TOPICS, ClientOptions({"group_id": "group"}, {}), f"group-{self.slot}", 1 << 20)
        transport = KafkaTransport(settings, world.clock)
        storage = StruckStorage(SharedStorage(world.memory, self._token), self)  # type: ignore[arg-type]
        rules = Rules(strategy, world.handler, plan.resequencer, NoChance())
        self._actors = Actors(rules, decoder.decode, plan.roster)
        servers = Servers(transport, storage, self._actors)
        tools = Tools(decoder, world.clock, Patience(PatienceSettings(), lambda _: None, lambda: False), self._token)
        self.cycle = Cycle(servers, tools, CycleSettings(strategy.name, plan.batch_size, 0))
        self.cycle.ownership.later = Later(PatienceSettings(0, 0))
        return self.cycle

    def _token(self) -> str:
        return f"token-{next(self._world.tokens)}"


def put(world: World, partition: int, record: Stored | None) -> None:
    world.broker.append(TopicPartition(TOPIC, partition), record)
