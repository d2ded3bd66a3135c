"""A store worker in its slot: the real runner and the real store on the simulated broker, with copies in real files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import copyfile
from typing import TYPE_CHECKING

from harness.simulated_stores.commands import PARTITIONS
from harness.simulated_stores.judge import COMMANDS, LETTERS, REPORTS, VALUES
from msgspec.structs import replace
from simulation.fakes.clients import FakeConsumer
from simulation.slot import Slot

from guardian.ports import TransportUnavailable
from notification_service.aggregation.files import ValuesFile, Writing
from notification_service.aggregation.kafka_store import KafkaStore
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage
from notification_service.aggregation.runner import StoreRunner
from notification_service.connectors.kafka.core.client_options import ClientOptions
from notification_service.connectors.kafka.settings import KafkaSettings, KafkaTopics

if TYPE_CHECKING:
    from harness.simulated_stores.world import World

TOPICS = KafkaTopics(COMMANDS, REPORTS, LETTERS, values=VALUES)


class StoreWorker(Slot):
    """`runner` is None while the worker is dead."""

    def __init__(self, world: World, slot: int) -> None:
        super().__init__(world, slot)
        self._world = world
        self.runner: StoreRunner | None = None
        self.store: KafkaStore | None = None
        self.clock = world.clock.of_process(str(slot))
        self._backup: dict[int, Path] = {}

    @property
    def consumer(self) -> FakeConsumer | None:
        member = self.store._transport._member if self.store is not None else None
        return member._consumer if member is not None else None  # type: ignore[return-value]

    @property
    def member(self) -> str:
        return self.consumer.group_metadata().member_id if self.consumer is not None else ""

    def copy(self, number: int) -> Path:
        return self._world.directory / f"worker-{self.slot}" / f"partition-{number}.db"

    def owned(self) -> set[int]:
        return {each.number for each in self.runner._read_to} if self.runner is not None else set()

    def read_to(self) -> dict[int, int]:
        return {each.number: offset for each, offset in self.runner._read_to.items()} if self.runner is not None else {}

    def judge_copies(self) -> None:
        """Have all copies checked. The worker is dead, or between two turns."""
        for number in range(PARTITIONS):
            if self.copy(number).exists():
                self._world.judge.compare_copy(number, self.copy(number))

    @contextmanager
    def writing(self, file: ValuesFile, write: object) -> Iterator[Writing]:
        """Write a copy, with strikes before, within and behind the transaction."""
        del file
        failure = TransportUnavailable("the disk is full")
        self.ask("write a copy", lambda: None, failure)
        with write as writing:  # type: ignore[attr-defined]
            yield writing
            if self._world.injected_faults.armed and self._world.random.random() < self._world.injected_faults.dangers.crash:
                raise self._world.injected_faults.crash(self.slot, "within a transaction of a copy")
        self.ask("have written a copy", lambda: None, failure)

    def _work(self) -> bool:
        runner = self.runner or self._start()
        assert self.store is None or self.store is runner._store or runner._store is None
        before = self._world.judge.positions[:]
        runner.turn()
        self.judge_copies()
        return before != self._world.judge.positions

    def _start(self) -> StoreRunner:
        world = self._world
        self.clock = world.clock.of_process(str(self.slot))
        self.runner = StoreRunner("payments", PaymentsOfMessage(world.plan.payments), self._open, self.clock, self.wait)
        return self.runner

    def _open(self) -> KafkaStore:
        options = ClientOptions({"group_id": "group"}, {})
        settings = KafkaSettings.make(TOPICS, options, f"group-{self.slot}", 1 << 20)
        self.store = KafkaStore(replace(settings, begins_at_earliest=True), self.copy(0).parent, self.clock)
        return self.store

    def _forget(self) -> None:
        """Die; what the operating system was given stays in the copies, unless they are lost or go back to an older state."""
        if self.store is not None:
            for each in self.store._owned.values():
                each.close()
        self.runner = self.store = None
        self.judge_copies()
        self._befall_copies()

    def _befall_copies(self) -> None:
        drawn = self._world.chance_of_copies
        for number in range(PARTITIONS):
            path = self.copy(number)
            fate = drawn.random()
            if fate < 0.15:
                ValuesFile(path, is_copy=True).clear()
            elif fate < 0.3 and number in self._backup:
                ValuesFile(path, is_copy=True).clear()
                copyfile(self._backup[number], path)
            elif fate < 0.5 and path.exists():
                self._backup[number] = path.with_suffix(".backup")
                copyfile(path, self._backup[number])
