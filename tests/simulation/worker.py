"""A worker's slot: a worker that dies is started again in its slot. Its work can be paused in the middle of any step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from greenlet import getcurrent, greenlet
from harness.actors.watched import WatchedActors
from harness.crashes.points import Crash
from harness.driving import NoChance
from harness.faltering import faltering
from harness.service_under_test import TOPIC
from msgspec.structs import replace
from simulation.clocks import MachineClock
from simulation.fakes.clients import FakeConsumer
from simulation.injected_faults import FOR_LONG
from simulation.struck_storage import StruckSharedStorage

from connectors.kafka.core.client_options import ClientOptions
from connectors.kafka.settings import KafkaSettings, KafkaTopics
from connectors.kafka.transport import KafkaTransport
from connectors.orders.port import NoOrders
from domain.decoding import DecodingSettings, EnvelopeDecoder
from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, RetryWithBackoff
from guardian.cycle import Cycle
from guardian.log_rate_limit import LogRateLimit
from guardian.owned_partition import OwnedPartition
from guardian.partitions import CycleSettings, Servers, Tools
from guardian.takeover_backoff import TakeoverBackoff
from resequencer.strategies.registry import StrategySettings, make_strategy
from resequencer.turn.context import TurnContext
from storage.none.storage import NoneSettings, NoneStorage
from storage.port import Storage

if TYPE_CHECKING:
    from simulation.world import World

Answer = TypeVar("Answer")
NOTIFICATIONS, DEAD_LETTERS = "PAYMENT_STATUS_NOTIFICATION", "IPF_PROCESSING_DATA_DEAD_LETTERS"
ORDERS, OUTCOMES = "IPF_PROCESSING_DATA_ORDERS", "IPF_PROCESSING_DATA_ORDER_OUTCOMES"
_TOPICS = KafkaTopics(TOPIC, NOTIFICATIONS, DEAD_LETTERS)
_SESSION_TURNS = 6


class Worker:
    """`cycle`, `actors` and `transport` are None while the worker is dead.

    Before the turn `stands_until` the worker does nothing.
    """

    def __init__(self, world: World, slot: int) -> None:
        self._world = world
        self.slot = slot
        self.clock = MachineClock(world.clock, world.remembered)
        self.cycle: Cycle | None = None
        self.actors: ActorGateway | None = None
        self.transport: KafkaTransport | None = None
        self._stretch: greenlet | None = None
        self.stands_until = 0

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
    def is_midway(self) -> bool:
        """Whether the worker stands still, or waits, in the middle of a cycle."""
        return self._stretch is not None

    @property
    def stands_still(self) -> bool:
        return self._world.turn < self.stands_until

    @property
    def is_unavailable(self) -> bool:
        """Whether the worker stands still until it is called back."""
        return self.stands_until == FOR_LONG

    @property
    def has_something_due(self) -> bool:
        """Whether units are due that were not woken or stopped yet: a cycle wakes at most as many units as it reads records."""
        wakes_at = self.cycle._next_wake_at if self.cycle is not None else None
        return wakes_at is not None and wakes_at <= self.clock.now()

    def go_on(self) -> bool:
        """Continue the current cycle, or run the next one, until it ends, stands still or waits. Return whether it committed."""
        self._stretch = self._stretch or greenlet(self._live)
        has_committed = self._stretch.switch()
        if self._stretch is not None and self._stretch.dead:
            self._stretch, self.stands_until = None, 0
        return bool(has_committed)

    def stand_still(self, turns: int) -> None:
        """Let the other workers continue.

        The group removes the worker if that takes longer than a session. The last available worker never stands still for long.
        """
        if turns == FOR_LONG and all(each.is_unavailable or each is self for each in self._world.workers):
            turns = _SESSION_TURNS
        self.stands_until = FOR_LONG if turns == FOR_LONG else self._world.turn + turns
        if turns > _SESSION_TURNS:
            self._world.throw_out(self.member)
        getcurrent().parent.switch()

    def wait(self, _: int) -> None:
        """Wait for a server that is away: the other workers continue meanwhile."""
        self.stand_still(1)

    def die(self) -> None:
        """Die as by `kill -9`: the brokers do not notice."""
        stretch, self._stretch, self.stands_until = self._stretch, None, 0
        if stretch is not None and stretch is not getcurrent() and not stretch.dead:
            stretch.throw(Crash("killed where it stood"))
            return
        if self.actors is not None:
            self.actors.close()
        self.cycle = self.transport = self.actors = None

    def owned(self) -> list[OwnedPartition]:
        return list(self.cycle.partitions.owned.values()) if self.cycle else []

    def words(self) -> str:
        if self.cycle is None:
            return "dead"
        untaken = {str(each): why.reason for each, why in self.cycle.partitions.put_off_takeovers.untaken.items()}
        return f"holds {[str(each.partition) for each in self.owned()]}, cannot take {untaken}"

    # What its clients and its storage ask

    def ask(self, name: str, call: Callable[[], Answer], failure: Exception, *, may_come_late: bool = False) -> Answer:
        return self._world.injected_faults.ask(self, name, call, failure, may_come_late=may_come_late)

    def leave_on_its_way(self, call: Callable[[], object]) -> None:
        self._world.injected_faults.leave_on_its_way(call)

    def choose(self, count: int) -> int:
        return self._world.random.randrange(count) if self._world.injected_faults.armed else count - 1

    # Its run

    def _live(self) -> bool:
        try:
            cycle = self.cycle or self._start()
            has_committed = cycle.run_once()
            self._world.forgotten += cycle.expire()
            return has_committed
        except Crash:
            self.die()
            return True

    def _start(self) -> Cycle:
        world, plan = self._world, self._world.plan
        strategy = make_strategy(StrategySettings(plan.strategy))
        decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=strategy.needs_sequence))
        orders = world.orders
        topics = _TOPICS if orders is None else replace(_TOPICS, orders=ORDERS, order_outcomes=OUTCOMES)
        settings = KafkaSettings.make(topics, ClientOptions({"group_id": "group"}, {}), f"group-{self.slot}", 1 << 20)
        context = TurnContext(faltering(strategy, world.handler.mistakes), world.handler, plan.resequencer, NoChance())
        self.actors = WatchedActors(context, decoder.decode, plan.registry)
        self.transport = KafkaTransport(settings, self.clock)
        source = NoOrders() if orders is None else orders.source(self)
        servers = Servers(self.transport, self._new_storage(), self.actors, source)
        tools = Tools(
            decoder, self.clock, RetryWithBackoff(BackoffSettings(), self.wait, lambda: False), world.token, LogRateLimit()
        )
        waits = plan.acknowledge_handled
        bounds = (waits, world.done_characters, plan.retention_ms, plan.portion_bytes)
        self.cycle = Cycle(servers, tools, CycleSettings(strategy.name, plan.batch_size, 0, *bounds))
        self.cycle.partitions.put_off_takeovers = TakeoverBackoff(BackoffSettings(0, 0))
        return self.cycle

    def _new_storage(self) -> Storage:
        plan = self._world.plan
        if plan.storage == "none":
            return NoneStorage(NoneSettings(1 << 40), self._world.token)
        storage = StruckSharedStorage(self._world.memory, self._world.token)
        storage.line = self
        return storage
