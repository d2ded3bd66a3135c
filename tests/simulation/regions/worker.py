"""A whole worker with the real transport of a region over simulated participants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from harness.actors.watched import WatchedActors
from harness.driving import NoChance
from harness.faltering import Mistakes, faltering
from simulation.regions.files import RegionFileSink, make_file_sink
from simulation.regions.queues import QueueSource
from simulation.regions.sinks import ForgettingSink, MarkerSink
from simulation.regions.sources import LeasedSource, LogSource
from simulation.slot import Slot
from simulation.struck_storage import StruckPartitionStore, StruckSharedStorage

from guardian.actor_gateway import ActorGateway
from guardian.backoff import BackoffSettings, LogRateLimit, RetryWithBackoff
from guardian.cycle import Cycle
from guardian.owned_partition import OwnedPartition
from guardian.partitions import CycleSettings, Servers, Tools
from guardian.region import MustReset, Region, RegionLimits
from guardian.resets import RegionCycles
from guardian.takeover import TakeoverBackoff
from notification_service.connectors.region_port import Sink
from notification_service.connectors.region_transport import RegionTransport, routes_of
from notification_service.events.format import DecodingSettings
from notification_service.payments.decoding import EnvelopeDecoder
from notification_service.payments.payment_data import LATEST_OBJECTS
from notification_service.payments.strategies import StrategySettings, make_strategy
from resequencer.record import Partition
from resequencer.turn.turn import TurnContext

if TYPE_CHECKING:
    from simulation.regions.world import RegionWorld


class RegionWorker(Slot):
    """`cycle`, `cycles`, `actors` and `source` are None while the worker is dead."""

    def __init__(self, world: RegionWorld, slot: int) -> None:
        super().__init__(world, slot)
        self._world = world
        self.cycle: Cycle | None = None
        self.cycles: RegionCycles | None = None
        self.actors: ActorGateway | None = None
        self.source: LeasedSource | None = None
        self._files: RegionFileSink | None = None

    @property
    def member(self) -> str:
        return str(self.slot)

    @property
    def has_something_due(self) -> bool:
        wakes_at = self.cycle._next_wake_at if self.cycle is not None else None
        return wakes_at is not None and wakes_at <= self._world.clock.now()

    def owned(self) -> list[OwnedPartition]:
        return list(self.cycle.partitions.owned.values()) if self.cycle else []

    def words(self) -> str:
        if self.cycle is None:
            return "dead"
        untaken = {str(each): why.reason for each, why in self.cycle.partitions.postponed_takeovers.untaken.items()}
        pending = {str(each.partition): len(each.unpublished) for each in self.owned()}
        return f"has {pending} to publish, cannot take {untaken}, waits for {self.cycle._tools.retry.reason}"

    def is_turned_away(self) -> bool:
        """Whether a server does not even let the worker connect: certainly nothing happens."""
        return self._world.injected_faults.armed and self._world.random.random() < self._world.turned_away

    # What its source takes

    def begins_taking(self, partition: Partition) -> None:
        self._world.taking[self.slot, partition] = self._world.taken.setdefault(self._world.opened[self.slot, partition], {})

    def takes(self, partition: Partition, ids: Mapping[str, int | None]) -> None:
        taken = self._world.taking[self.slot, partition]
        taken.update({offset: each for each, offset in ids.items() if offset is not None})

    def acknowledges(self, partition: Partition, ids: Collection[str]) -> None:
        self._world.is_acknowledged(self._world.opened[self.slot, partition], ids)

    # Its run

    def _work(self) -> bool:
        cycle = self.cycle or self._start()
        assert self.cycles is not None
        if self._world.draws_a_reset("an operator resets the region"):
            self.cycles.reset_by("an operator", is_forced=True)
        to_initial = "an operator resets the region to its initial state"
        if not self._world.kind.is_queue and self._world.draws_a_reset(to_initial, is_set_back=True):
            self.cycles.reset_to_initial("an operator", is_dry_run=False)
        has_committed = self.cycles.run_once()
        cycle.expire()
        return has_committed

    def _forget(self) -> None:
        if isinstance(self.source, QueueSource):
            self._world.lose_links(self.source.disconnect())
        if self.actors is not None:
            self.actors.close()
        if self._files is not None:
            self._files.close()
        self.cycle = self.cycles = self.source = self.actors = None

    def _start(self) -> Cycle:
        world, plan = self._world, self._world.plan
        strategy = make_strategy(StrategySettings(plan.strategy))
        decoder = EnvelopeDecoder(DecodingSettings(needs_sequence=strategy.needs_sequence))
        context = TurnContext(faltering(strategy, Mistakes()), world.handler, LATEST_OBJECTS, plan.resequencer, NoChance())
        self.actors = WatchedActors(context, decoder.decode, plan.registry)
        self.source = self._make_source()
        transport = RegionTransport(self.source, routes_of(self._sinks()))  # type: ignore[arg-type]  # The kinds of sources.
        storage = _OpenedStorage(world.memory, world.token)
        storage.line, storage.worker, storage.makes_at_once = self, self, world.makes_at_once
        retry = RetryWithBackoff(BackoffSettings(), self.wait, lambda: False)
        retry.waits_for_people = True
        tools = Tools(decoder, world.clock, retry, world.token, LogRateLimit())
        settings = CycleSettings(
            strategy.name,
            plan.batch_size,
            0,
            portion_bytes=plan.portion_bytes,
            acknowledge_every_ms=0 if world.kind.is_queue else 1_000,
        )
        servers = Servers(transport, storage, self.actors)
        self.cycle = Cycle(servers, tools, settings)
        self.cycle.region = _ImpatientRegion(world)
        self.cycles = RegionCycles(self.cycle, servers, tools, self.wait)
        self.cycle.partitions.postponed_takeovers = TakeoverBackoff(BackoffSettings(0, 0))
        return self.cycle

    def _make_source(self) -> LeasedSource:
        world = self._world
        if world.kind.is_queue:
            return QueueSource(self, world.leases, world.queues)
        return LogSource(self, world.leases, world.log, remembers=world.kind.remembers)

    def _sinks(self) -> dict[str, Sink]:
        return {name: self._make_sink(name) for name in self._world.sink_names}

    def _make_sink(self, name: str) -> Sink:
        if name == "file":
            self._files = make_file_sink(self, self._world.directory)
            return self._files
        server = self._world.servers[name]
        if server.fences is None:
            return ForgettingSink(self, server)
        return MarkerSink(self, server)

    def note_opened(self, partition: Partition, token: str) -> None:
        self._world.opened[self.slot, partition] = token


class _ImpatientRegion(Region):
    """Draws whether the turns of an interval took too long: then the interval is never committed, and the region resets."""

    def __init__(self, world: RegionWorld) -> None:
        super().__init__(RegionLimits(max_resets=1_000_000))
        self._world = world

    def check_drain(self, took_ms: int, count: int, is_stopping: Callable[[], bool]) -> None:
        del took_ms, is_stopping
        if count and self._world.draws_a_reset(f"the turns of {count} records took too long"):
            raise MustReset("too long", are_units=True)


class _OpenedStorage(StruckSharedStorage):
    """Reports under which token its worker opened a partition."""

    worker: RegionWorker

    def open(self, partition: Partition) -> StruckPartitionStore:  # type: ignore[override]
        store = super().open(partition)
        self.worker.note_opened(partition, store.header.token)
        return store
