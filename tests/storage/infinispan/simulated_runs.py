"""Random runs of a partition on a cache in memory: owners come, leave, die during a request, and write late.

A run follows from its seed. Each answer to an owner is compared with a simple model, and each entry that is in the cache at the
end must still be needed. Partitions that share a cache have clocks that differ.
"""

from collections.abc import Callable
from itertools import count
from random import Random
from typing import TypeVar

from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import Commit, Pending, StashEntry, StorageUnavailable, UnitChange, WaitKind, Waits
from storage.infinispan.partition import InfinispanPartitionStore
from storage.infinispan.partition_state import everything
from storage.infinispan.storage import InfinispanStorage, LayoutSettings
from tests.storage.infinispan.memory import Failure, MemoryCache, MemoryServer
from tests.storage.infinispan.storages import SMALL
from tests.storage.model import ModelPartition

Answer = TypeVar("Answer")

PARTITION = Partition("T", 0)
RETENTION_MS = 1_000
UNITS = 30
MAX_TRIES = 60


class Died(Exception):
    """The process ended during a request."""


class Connection(MemoryCache):
    """Loses random requests and answers, and dies on demand."""

    def __init__(self, server: MemoryServer, chance: Random, failing: float) -> None:
        super().__init__(server, self._fate)
        self._chance = chance
        self._failing = failing
        self.dies_in: int | None = None
        self.is_dead = False

    def _fate(self, act: str, key: str) -> Failure:
        if self.is_dead:
            raise Died
        if self.dies_in is not None:
            self.dies_in -= 1
            self.is_dead = self.dies_in < 0
        if self.is_dead or self._chance.random() < self._failing:
            return self._chance.choice((Failure.BEFORE, Failure.AFTER))
        return Failure.NONE

    def _answer(self, act: str, key: str, do: Callable[[], object]) -> object:
        try:
            return super()._answer(act, key, do)
        except StorageUnavailable:
            if self.is_dead:
                raise Died from None
            raise


class Owner:
    """A worker that opened the partition.

    `in_memory` are the units that it knows. `refused` are units that the storage reported as missing although the model has them.
    """

    def __init__(self, connection: Connection, store: InfinispanPartitionStore, storage: InfinispanStorage) -> None:
        self.connection = connection
        self.store = store
        self.storage = storage
        self.in_memory: set[str] = set()
        self.refused: set[str] = set()
        self.late: Commit | None = None


class SimulatedRun:
    """A run. `failing` is the share of failing requests, `dying` the share of the steps in which the owner dies.

    `clock` is the owner's caught-up clock. `leaving` are the units that the owner asked to forget since its last commit: until
    the next commit they may or may not exist, and then they are gone.
    """

    def __init__(
        self,
        seed: int,
        server: MemoryServer,
        partition: Partition = PARTITION,
        *,
        failing: float = 0.0,
        dying: float = 0.0,
        ahead_ms: int = 0,
    ) -> None:
        self.chance = Random(seed)
        self.failing, self.dying = failing, dying
        self.server = server
        self.partition = partition
        self.settings = LayoutSettings("runs", **SMALL)
        self.model = ModelPartition()
        self.clock = 0
        self.leaving: set[str] = set()
        self.attempts = count()
        self.tokens = count()
        self.tried: Commit | None = None
        self.exits = 0
        self.zombies: list[Owner] = []
        self.owner = self._come()
        self.clock += ahead_ms

    def step(self) -> None:
        acts = (
            self._commit,
            self._load,
            self._let_go,
            self._wait,
            self._expire,
            self._be_late,
            self._hand_over,
        )
        act = self.chance.choices(acts, (18, 3, 2, 4, 3, 1, 0.5))[0]
        if self.chance.random() < self.dying:
            self.owner.connection.dies_in = self.chance.randrange(12)
        try:
            act()
        except Died:
            self.exits += 1
            self.zombies = [each for each in self.zombies if not each.connection.is_dead]
            self.owner = self._come()
        self.owner.connection.dies_in = None

    def clear_up(self) -> None:
        """Commit, as an owner whose requests never fail, until nothing is left that could be deleted."""
        self._look_at_everything()
        self.failing = 0.0
        self.owner = self._come()
        for _ in range(30):
            self._store(self._next(()))

    def leaked(self) -> set[str]:
        """Return the names in the cache that no part of the partition needs."""
        contents = self.owner.store._contents
        prefix = f"{self.owner.store._link.name}:"
        needed = {prefix + name for name in everything(contents.as_root())}
        return {name for name in self.server.values if name.startswith(prefix)} - needed

    def _come(self) -> Owner:
        connection = Connection(self.server, self.chance, self.failing)
        storage = InfinispanStorage(self.settings, connection, lambda: f"token-{next(self.tokens)}")
        store = _answered(lambda: storage.open(self.partition))
        self._settle(store)
        self.leaving.clear()
        self.model.take(store.header.token)
        self.clock = store.header.caught_up_ms
        self.owner = Owner(connection, store, storage)
        self._look_at_everything()
        self._let_go()
        return self.owner

    def _settle(self, store: InfinispanPartitionStore) -> None:
        """Find out whether the commit in which the owner died was stored."""
        if self.model.token is None:
            return
        known = dict(store.header.history)
        tried, self.tried = self.tried, None
        if tried is not None and known[self.model.token] == tried.number:
            self._apply(tried)
        assert known[self.model.token] == self.model.commit

    def _commit(self) -> None:
        units = {f"unit-{self.chance.randrange(UNITS)}" for _ in range(self.chance.randrange(6))}
        self._know(units)
        self._store(self._next(tuple(map(self._change, sorted(units)))))

    def _store(self, commit: Commit) -> None:
        self.tried = commit
        _answered(lambda: self.owner.store.commit(commit))
        self.tried = None
        self._apply(commit)
        if self.chance.random() < 0.1:
            _answered(lambda: self.owner.store.commit(commit))

    def _apply(self, commit: Commit) -> None:
        """Apply a commit to the model. The owner starts units again that do not exist for it; units in
        `leaving` are gone now.
        """
        begun = self.owner.refused & {change.unit for change in commit.changes}
        for unit in begun | self.leaving:
            self.model.units.pop(unit, None)
        self.owner.refused -= begun
        self.leaving.clear()
        self.model.apply(commit)

    def _know(self, units: set[str]) -> None:
        """Load the units that are not in memory."""
        if unknown := sorted(units - self.owner.in_memory):
            self._compare(unknown)

    def _compare(self, units: list[str]) -> None:
        loaded = _answered(lambda: self.owner.store.load(units))
        for unit in units:
            kept = self.model.units.get(unit)
            if unit in self.leaving and unit not in loaded:
                self.owner.refused.add(unit)
            else:
                assert loaded.get(unit) == (kept and kept.snapshot(unit)), unit
                self.owner.refused.discard(unit)
                self.leaving.discard(unit)
        self.owner.in_memory.update(units)

    def _load(self) -> None:
        self._know({f"unit-{self.chance.randrange(UNITS)}" for _ in range(4)})

    def _let_go(self) -> None:
        """Remove most units from memory."""
        self.owner.in_memory = {unit for unit in sorted(self.owner.in_memory) if self.chance.random() < 0.3}

    def _wait(self) -> None:
        self.clock += self.chance.choice((0, 1, 50, 200, 700))

    def _expire(self) -> None:
        """Expire units, but none in memory. The retention may have changed."""
        until = self.clock - self.chance.choice((0, 50, RETENTION_MS, RETENTION_MS, RETENTION_MS, 2 * RETENTION_MS))
        in_memory = self.owner.in_memory
        while _answered(lambda: self.owner.store.expire(until, in_memory)):
            pass
        old = {unit for unit, kept in self.model.units.items() if kept.waits is None and kept.changed_at <= until}
        self.leaving |= old - in_memory

    def _be_late(self) -> None:
        """Let a former owner write, with all requests that it has under way."""
        if self.zombies:
            zombie = self.chance.choice(self.zombies)
            commit = zombie.late if self.chance.random() < 0.5 else self._next((), zombie.store)
            assert _is_lost(lambda: zombie.store.commit(commit))
            assert _is_lost(lambda: zombie.store.load(["unit-1"]))
            assert _is_lost(lambda: zombie.store.expire(self.clock, ()))

    def _hand_over(self) -> None:
        """Let another owner take over. The former owner does not know it and has a commit under way, which counts
        or comes too late.
        """
        before = self.owner
        unit = f"unit-{self.chance.randrange(UNITS)}"
        self._know({unit})
        late = before.late = self._next((self._change(unit),))
        if (chance := self.chance.randrange(3)) < 2:
            self.tried = late
            self._begin(before, late, counts=chance == 1)
        self.zombies = [*self.zombies[-2:], before]
        self.owner = self._come()

    def _begin(self, owner: Owner, commit: Commit, *, counts: bool) -> None:
        """Write the values of a commit, then let all answers get lost; with `counts` the counter moves."""
        move = owner.connection.compare_and_set

        def silent(name: str, expected: int, update: int) -> bool:
            if counts:
                move(name, expected, update)
            raise StorageUnavailable("no answer")

        owner.connection.compare_and_set = silent
        try:
            for _ in range(MAX_TRIES):
                try:
                    owner.store.commit(commit)
                except StorageUnavailable as error:
                    if str(error) == "no answer":
                        break
        finally:
            del owner.connection.compare_and_set

    def _look_at_everything(self) -> None:
        store, model = self.owner.store, self.model
        header = store.header
        others = (header.caught_up_ms, header.orders, header.source_state)
        known = (header.next_offset, header.highest_number, header.heal_offset, *others)
        assert known == model.progress
        waiting = {name: unit.waits for name, unit in model.units.items() if unit.waits is not None}
        assert dict(_answered(store.waiting)) == waiting
        assert _answered(store.pending) == [Pending(*each) for each in sorted(model.pending.items())]
        self._compare([f"unit-{number}" for number in range(UNITS)])

    def _next(self, changes: tuple[UnitChange, ...], store: InfinispanPartitionStore | None = None) -> Commit:
        number = (store or self.owner.store).header.commit + 1
        added = tuple(Pending(self.chance.randrange(1, 50), b"blocks") for _ in range(self.chance.randrange(2)))
        attempt, published = f"attempt-{next(self.attempts)}", self.chance.randrange(60)
        fields = {"caught_up_ms": self.clock, "orders": str(number % 3), "source_state": str(number % 2)}
        return Commit(number, attempt, number, number, 0, changes, added, published, **fields)

    def _change(self, unit: str) -> UnitChange:
        chance = self.chance
        waits = Waits(self.clock, WaitKind.RETRY, 0, "x", "S", 1, 1) if chance.random() < 0.4 else None
        added = tuple(StashEntry(offset, self._body()) for offset in chance.sample(range(5), chance.randrange(3)))
        removed = tuple(chance.sample(range(5), chance.randrange(3)))
        data = self._body() if chance.random() < 0.3 else None
        return UnitChange(unit, self._body(), waits, added, removed, data)

    def _body(self) -> bytes:
        return self.chance.randbytes(self.chance.choice((0, 3, 40, 150)))


def live(steps: int, *runs: SimulatedRun) -> None:
    """Do these runs in turns; at the end each clears up."""
    for _ in range(steps):
        for each in runs:
            each.step()
    for each in runs:
        each.clear_up()


def _answered(call: Callable[[], Answer]) -> Answer:
    """Repeat the call until it is answered, as the worker does."""
    for _ in range(MAX_TRIES):
        try:
            return call()
        except StorageUnavailable:
            continue
    raise AssertionError("never answered")


def _is_lost(act: Callable[[], object]) -> bool:
    for _ in range(MAX_TRIES):
        try:
            act()
        except OwnershipLost:
            return True
        except StorageUnavailable:
            continue
        else:
            return False
    raise AssertionError("never answered")
