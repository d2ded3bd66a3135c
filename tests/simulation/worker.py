"""A whole worker in its slot, with its storage and its actors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from harness.actors.watched import WatchedActors
from harness.driving import NoChance
from harness.faltering import faltering
from harness.service_under_test import TOPIC
from harness.workloads.of_strategies import decoder_of, strategy_of
from msgspec.structs import replace
from simulation.clocks import MachineClock
from simulation.fakes.clients import FakeConsumer
from simulation.slot import Slot
from simulation.struck_storage import StruckSharedStorage

from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, LogRateLimit, RetryWithBackoff
from guardian.cycle import Cycle
from guardian.owned_partition import OwnedPartition
from guardian.partitions import CycleSettings, Servers, Tools
from guardian.ports import NoOrders
from guardian.resets import RegionCycles
from guardian.takeover import TakeoverBackoff
from guardian.unit_registry import UnitRegistrySettings
from notification_service.connectors.kafka.core.client_options import ClientOptions
from notification_service.connectors.kafka.settings import KafkaSettings, KafkaTopics
from notification_service.connectors.kafka.sink import KafkaTransport
from notification_service.payments.payment_data import LATEST_OBJECTS
from resequencer.batch import UnitKey
from resequencer.call import Answer
from resequencer.record import Partition
from resequencer.storage_port import Storage
from resequencer.turn.turn import TurnContext
from resequencer.unit_codec import Decode
from storage.none import NoneSettings, NoneStorage

if TYPE_CHECKING:
    from simulation.with_calls import SimulatedCalls
    from simulation.world import World

NOTIFICATIONS, DEAD_LETTERS = "PAYMENT_STATUS_NOTIFICATION", "IPF_PROCESSING_DATA_DEAD_LETTERS"
ORDERS, OUTCOMES = "IPF_PROCESSING_DATA_ORDERS", "IPF_PROCESSING_DATA_ORDER_OUTCOMES"
_TOPICS = KafkaTopics(TOPIC, NOTIFICATIONS, DEAD_LETTERS)


class CallingActors(WatchedActors):
    """Has a handler that waits. What may never be is noticed by the world's `calls`."""

    def __init__(
        self, context: TurnContext, decode: Decode, settings: UnitRegistrySettings, calls: SimulatedCalls, worker: Worker
    ) -> None:
        super().__init__(context, decode, settings, calls.of(worker))
        self._simulated, self._worker = calls, worker

    def take_answers(self) -> Mapping[UnitKey, Answer]:
        answers = super().take_answers()
        self._simulated.check_answers(self._worker, answers)
        return answers

    def drop(self, partition: Partition) -> None:
        super().drop(partition)
        self._simulated.note_drop(self._worker, partition)


class Worker(Slot):
    """`cycle`, `actors` and `transport` are None while the worker is dead."""

    def __init__(self, world: World, slot: int) -> None:
        super().__init__(world, slot)
        self._world = world
        self.clock = MachineClock(world.clock, world.remembered)
        self.cycle: Cycle | None = None
        self._cycles: RegionCycles | None = None
        self.actors: ActorGateway | None = None
        self.transport: KafkaTransport | None = None

    @property
    def consumer(self) -> FakeConsumer | None:
        """The worker's group member, or None before it has one."""
        member = self.transport._member if self.transport is not None else None
        return member._consumer if member is not None else None

    @property
    def member(self) -> str:
        """The worker's name in the group, empty if it is not a member."""
        return self.consumer.group_metadata().member_id if self.consumer is not None else ""

    @property
    def has_something_due(self) -> bool:
        """Whether units are due that were not woken or stopped yet: a cycle wakes at most as many units as it reads records."""
        wakes_at = self.cycle._next_wake_at if self.cycle is not None else None
        return wakes_at is not None and wakes_at <= self.clock.now()

    @property
    def is_calling(self) -> bool:
        """Whether a handler is called, or has to be."""
        calls = None if self.actors is None else self.actors.report_calls()
        return calls is not None and self.actors is not None and (calls.waiting > 0 or self.actors.calls_due_in_ms() is not None)

    def owned(self) -> list[OwnedPartition]:
        return list(self.cycle.partitions.owned.values()) if self.cycle else []

    def words(self) -> str:
        if self.cycle is None:
            return "dead"
        untaken = {str(each): why.reason for each, why in self.cycle.partitions.postponed_takeovers.untaken.items()}
        return f"holds {[str(each.partition) for each in self.owned()]}, cannot take {untaken}"

    # Its run

    def _work(self) -> bool:
        cycle = self.cycle or self._start()
        assert self._cycles is not None
        has_committed = self._cycles.run_once()
        self._world.forgotten += cycle.expire()
        return has_committed

    def _forget(self) -> None:
        if self.actors is not None:
            self.actors.close()
        self.cycle = self._cycles = self.transport = self.actors = None

    def _start(self) -> Cycle:
        world, plan = self._world, self._world.plan
        strategy = strategy_of(plan)
        decoder = decoder_of(plan, strategy)
        orders = world.orders
        topics = _TOPICS if orders is None else replace(_TOPICS, orders=ORDERS, order_outcomes=OUTCOMES)
        settings = KafkaSettings.make(topics, ClientOptions({"group_id": "group"}, {}), f"group-{self.slot}", 1 << 20)
        context = TurnContext(
            faltering(strategy, world.handler.mistakes), world.handler, LATEST_OBJECTS, plan.resequencer, NoChance()
        )
        self.actors = WatchedActors(context, decoder.decode, plan.registry)
        if world.calls is not None:
            self.actors = CallingActors(context, decoder.decode, plan.registry, world.calls, self)
        self.transport = KafkaTransport(settings, self.clock)
        source = NoOrders() if orders is None else orders.source(self)
        servers = Servers(self.transport, self._new_storage(), self.actors, source)
        retry = RetryWithBackoff(BackoffSettings(), self.wait, lambda: False)
        retry.waits_for_people = True
        tools = Tools(decoder, self.clock, retry, world.token, LogRateLimit())
        waits = plan.acknowledge_handled
        bounds = (waits, world.done_characters, plan.retention_ms, plan.portion_bytes)
        self.cycle = Cycle(servers, tools, CycleSettings(strategy.name, plan.batch_size, 0, *bounds))
        self._cycles = RegionCycles(self.cycle, servers, tools, self.wait)
        self.cycle.partitions.postponed_takeovers = TakeoverBackoff(BackoffSettings(0, 0))
        return self.cycle

    def _new_storage(self) -> Storage:
        plan = self._world.plan
        if plan.storage == "none":
            return NoneStorage(NoneSettings(1 << 40), self._world.token)
        storage = StruckSharedStorage(self._world.memory, self._world.token)
        storage.line, storage.makes_at_once = self, self._world.makes_at_once
        return storage
