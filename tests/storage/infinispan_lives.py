"""Random lives of one partition on a cache in memory: owners that come, go, die in the midst of a request, and come late.

A life follows from its seed. Whatever an owner is told is compared with a simple model, and whatever lies in the cache in the end
must be needed by somebody.
"""

from collections.abc import Callable
from itertools import count
from random import Random
from typing import TypeVar

from domain.errors import OwnershipLost
from domain.record import Partition
from storage.infinispan import InfinispanStorage
from storage.infinispan_forgotten import Span
from storage.infinispan_loss import everything
from storage.infinispan_partition import InfinispanPartitionStore
from storage.infinispan_settings import LayoutSettings
from storage.port import Commit, Pending, StashEntry, StorageUnavailable, UnitChange, WaitKind, Waits
from tests.storage.infinispan_harness import SMALL
from tests.storage.infinispan_memory import Failure, MemoryCache, MemoryServer
from tests.storage.model import ModelPartition

Answer = TypeVar("Answer")

PARTITION = Partition("T", 0)
RETENTION_MS = 1_000
UNITS = 30
MOST_TRIES = 60


class Died(Exception):
    """The process ended in the midst of a request."""


class Connection(MemoryCache):
    """Loses requests and answers by chance, and dies when it is told."""

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
    """Somebody who opened the partition.

    `in_use` has the units that it knows, by the instant of its last look at them; `refused` those that it was told do not exist.
    """

    def __init__(self, connection: Connection, store: InfinispanPartitionStore, storage: InfinispanStorage) -> None:
        self.connection = connection
        self.store = store
        self.storage = storage
        self.in_use: dict[str, int] = {}
        self.refused: set[str] = set()
        self.late: Commit | None = None


class Life:
    """`failing` is the part of the requests that fail, `dying` that of the steps in which the owner dies."""

    def __init__(self, seed: int, *, failing: float = 0.0, dying: float = 0.0, grace_ms: int = 300) -> None:
        self.chance = Random(seed)
        self.failing, self.dying = failing, dying
        self.server = MemoryServer()
        self.settings = LayoutSettings("lives", Span(RETENTION_MS, grace_ms), **SMALL)
        self.model = ModelPartition()
        self.now, self.horizon, self.farthest = 10_000, -1, -1
        self.attempts = count()
        self.tokens = count()
        self.tried: Commit | None = None
        self.deaths = 0
        self.zombies: list[Owner] = []
        self.owner = self._come()

    def live(self, steps: int) -> None:
        for _ in range(steps):
            acts = (
                self._commit,
                self._commit,
                self._commit,
                self._load,
                self._wait,
                self._expire,
                self._be_late,
                self._hand_over,
            )
            act = self.chance.choices(acts, (6, 6, 6, 3, 2, 2, 1, 0.5))[0]
            if self.chance.random() < self.dying:
                self.owner.connection.dies_in = self.chance.randrange(12)
            try:
                act()
            except Died:
                self.deaths += 1
                self.zombies = [each for each in self.zombies if not each.connection.is_dead]
                self.owner = self._come()
            self.owner.connection.dies_in = None
        self._look_at_everything()

    def clear_up(self) -> None:
        """Until nothing is left that could be deleted; as somebody who never fails."""
        self.failing = 0.0
        self.owner = self._come()
        for _ in range(30):
            self._store(self._next(()))

    def leaked(self) -> set[str]:
        """What nobody needs."""
        contents = self.owner.store._contents
        prefix = f"{self.owner.store._link.name}:"
        needed = {prefix + name for name in everything(contents.as_root())} | {"lives::forgotten-until"}
        return set(self.server.values) - needed

    def _come(self) -> Owner:
        connection = Connection(self.server, self.chance, self.failing)
        storage = InfinispanStorage(self.settings, connection, lambda: f"token-{next(self.tokens)}")
        store = _answered(lambda: storage.open(PARTITION))
        self._settle(store)
        self.horizon = int(self.server.values.get("lives::forgotten-until", b"-1"))
        self.model.take(store.header.token)
        owner = Owner(connection, store, storage)
        self.owner = owner
        self._look_at_everything()
        return owner

    def _settle(self, store: InfinispanPartitionStore) -> None:
        """What became of a commit in which its owner died is to be seen now."""
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
        for unit in units:
            self.owner.in_use[unit] = self.now

    def _store(self, commit: Commit) -> None:
        self.tried = commit
        _answered(lambda: self.owner.store.commit(commit))
        self.tried = None
        self._apply(commit)
        if self.chance.random() < 0.1:
            _answered(lambda: self.owner.store.commit(commit))

    def _apply(self, commit: Commit) -> None:
        """To a unit that it was told does not exist, the owner begins anew."""
        for change in commit.changes:
            if change.unit in self.owner.refused:
                self.model.units.pop(change.unit, None)
                self.owner.refused.remove(change.unit)
        self.model.apply(commit)

    def _know(self, units: set[str]) -> None:
        """Units that are not in use are loaded; those that were forgotten begin anew."""
        span = self.settings.span.grace_ms
        self.owner.in_use = {unit: at for unit, at in self.owner.in_use.items() if self.now - at <= span}
        unknown = sorted(units - self.owner.in_use.keys())
        if unknown:
            self._compare(unknown)
        self.owner.in_use |= dict.fromkeys(unknown, self.now)

    def _compare(self, units: list[str]) -> None:
        loaded = _answered(lambda: self.owner.store.load(units))
        for unit in units:
            kept = self.model.units.get(unit)
            is_idle = kept is not None and kept.waits is None
            if is_idle and kept.changed_at <= self.horizon:
                assert unit not in loaded, f"{unit} was forgotten"
            elif not (is_idle and kept.changed_at <= self.farthest and unit not in loaded):
                assert loaded.get(unit) == (kept and kept.snapshot(unit)), unit
            (self.owner.refused.discard if unit in loaded or unit in self.owner.in_use else self.owner.refused.add)(unit)

    def _load(self) -> None:
        self._know({f"unit-{self.chance.randrange(UNITS)}" for _ in range(4)})

    def _wait(self) -> None:
        """A clock that is set back brings back what was not given up yet: each unit whole, or not at all."""
        self.now += self.chance.choice((1, 50, 200, 700, -300))
        if self.chance.random() < 0.3:
            self._expire()

    def _expire(self) -> None:
        while _answered(lambda: self.owner.storage.expire(self.now)):
            pass
        self.horizon = self.now - RETENTION_MS
        self.farthest = max(self.farthest, self.horizon)

    def _be_late(self) -> None:
        """One who was an owner once writes, with all that it has on its way."""
        if self.zombies:
            zombie = self.chance.choice(self.zombies)
            commit = zombie.late if self.chance.random() < 0.5 else self._next((), zombie.store)
            assert _is_lost(lambda: zombie.store.commit(commit))
            assert _is_lost(lambda: zombie.store.load(["unit-1"]))

    def _hand_over(self) -> None:
        """Another owner comes. The one of before does not know, and has a commit on its way: it counts, or it comes too late."""
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
        """Its values are written, and then nothing is heard any more; with `counts` the counter moves."""
        move = owner.connection.compare_and_set

        def silent(name: str, expected: int, update: int) -> bool:
            if counts:
                move(name, expected, update)
            raise StorageUnavailable("no answer")

        owner.connection.compare_and_set = silent
        try:
            for _ in range(MOST_TRIES):
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
        assert (header.next_offset, header.highest_number, header.heal_offset) == model.progress
        waiting = {name: unit.waits for name, unit in model.units.items() if unit.waits is not None}
        assert dict(_answered(store.waiting)) == waiting
        assert _answered(store.pending) == [Pending(*each) for each in sorted(model.pending.items())]
        self._compare([f"unit-{number}" for number in range(UNITS)])

    def _next(self, changes: tuple[UnitChange, ...], store: InfinispanPartitionStore | None = None) -> Commit:
        number = (store or self.owner.store).header.commit + 1
        added = tuple(Pending(self.chance.randrange(1, 50), b"leaves") for _ in range(self.chance.randrange(2)))
        attempt = f"attempt-{next(self.attempts)}"
        return Commit(number, attempt, self.now, number, 0, changes, added, self.chance.randrange(60))

    def _change(self, unit: str) -> UnitChange:
        chance = self.chance
        waits = Waits(self.now, WaitKind.RETRY, 0, "x", "S", 1, 1) if chance.random() < 0.4 else None
        added = tuple(StashEntry(offset, self._body()) for offset in chance.sample(range(5), chance.randrange(3)))
        removed = tuple(chance.sample(range(5), chance.randrange(3)))
        data = self._body() if chance.random() < 0.3 else None
        return UnitChange(unit, self._body(), waits, added, removed, data)

    def _body(self) -> bytes:
        return self.chance.randbytes(self.chance.choice((0, 3, 40, 150)))


def _answered(call: Callable[[], Answer]) -> Answer:
    """The same call again until it is answered, as the worker does it."""
    for _ in range(MOST_TRIES):
        try:
            return call()
        except StorageUnavailable:
            continue
    raise AssertionError("never answered")


def _is_lost(act: Callable[[], object]) -> bool:
    for _ in range(MOST_TRIES):
        try:
            act()
        except OwnershipLost:
            return True
        except StorageUnavailable:
            continue
        else:
            return False
    raise AssertionError("never answered")
