"""Random runs of a storage against a simple model: the core of the contract."""

from collections.abc import Callable
from itertools import count
from typing import Any

from harness.examples import examples
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from resequencer.errors import OwnershipLost
from resequencer.storage_port import (
    Commit,
    Header,
    PartitionStore,
    Pending,
    Snapshot,
    StashEntry,
    Storage,
    UnitChange,
    WaitKind,
    Waits,
)
from tests.storage.contract import OTHER, PARTITION, Harness

UNITS = ("a", "b", "c", "ü\x00")

bodies = st.binary(max_size=4)
waits = st.none() | st.builds(
    Waits, st.integers(0, 9), st.sampled_from(WaitKind), st.integers(0, 9), st.just("x"), st.just("S"), st.just(1), st.just(2)
)
stashed = st.dictionaries(st.integers(0, 5), bodies, max_size=3).map(
    lambda entries: tuple(StashEntry(offset, body) for offset, body in entries.items())
)
removed = st.lists(st.integers(0, 5), max_size=3, unique=True).map(tuple)
change_lists = st.lists(
    st.tuples(st.sampled_from(UNITS), bodies, waits, stashed, removed, st.none() | bodies),
    max_size=4,
    unique_by=lambda change: change[0],
)
added = st.dictionaries(st.integers(1, 9), bodies, max_size=3).map(
    lambda entries: tuple(Pending(number, body) for number, body in entries.items())
)


class ModelUnit:
    """A unit as the storage should have it."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.stash: dict[int, bytes] = {}

    def change(self, change: UnitChange, changed_at: int) -> None:
        self.state, self.waits, self.changed_at = change.state, change.waits, changed_at
        if change.data is not None:
            self.data = change.data
        for offset in change.stash_removed:
            self.stash.pop(offset, None)
        self.stash |= {entry.offset: entry.body for entry in change.stash_added}

    def snapshot(self, unit: str) -> Snapshot:
        stash = tuple(StashEntry(offset, self.stash[offset]) for offset in sorted(self.stash))
        return Snapshot(unit, self.state, self.data, stash)


class ModelPartition:
    """A partition as the storage should have it."""

    def __init__(self) -> None:
        self.token: str | None = None
        self.commit = 0
        self.attempt: str | None = None
        self.progress: tuple[int | None, int, int, int, str, str] = (None, 0, 0, 0, "", "")
        self.history: dict[str, int] = {}
        self.units: dict[str, ModelUnit] = {}
        self.pending: dict[int, bytes] = {}

    def take(self, token: str) -> None:
        if self.token is not None:
            self.history[self.token] = self.commit
        self.token, self.commit, self.attempt = token, 0, None

    def apply(self, commit: Commit) -> None:
        self.commit, self.attempt = commit.number, commit.attempt
        others = (commit.caught_up_ms, commit.orders, commit.source_state)
        self.progress = (commit.next_offset, commit.highest_number, commit.heal_offset, *others)
        for change in commit.changes:
            self.units.setdefault(change.unit, ModelUnit()).change(change, commit.caught_up_ms)
        self.pending |= {each.number: each.body for each in commit.added}
        self.pending = {number: body for number, body in self.pending.items() if number > commit.published}

    def allows(self, token: str, commit: Commit) -> bool:
        return self.token == token and self.commit == commit.number - 1

    def has(self, token: str, commit: Commit) -> bool:
        return (self.token, self.commit, self.attempt) == (token, commit.number, commit.attempt)

    def is_at(self, header: Header) -> bool:
        return (self.token, self.commit) == (header.token, header.commit)


class Owner:
    """An owner that once opened the partition, in a process that still lives, with its last attempted commit; maybe a zombie."""

    def __init__(self, partition: ModelPartition, store: PartitionStore, storage: Storage) -> None:
        self.partition = partition
        self.store = store
        self.storage = storage
        self.tried: Commit | None = None

    @property
    def token(self) -> str:
        return self.store.header.token


def is_lost(act: Callable[[], object]) -> bool:
    try:
        act()
    except OwnershipLost:
        return True
    return False


class StorageMachine(RuleBasedStateMachine):
    """Takeovers, commits (good, repeated, unanswered, late, of another owner), loads and expiries, in any order by any owner."""

    def make_harness(self) -> Harness:
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.harness = self.make_harness()
        self.storages = [self.harness.make(), self.harness.make()]
        self.model = {PARTITION: ModelPartition(), OTHER: ModelPartition()}
        self.owners: list[Owner] = []
        self.now = 0
        self.attempts = count()

    @rule(which=st.integers(0, 1), partition=st.sampled_from([PARTITION, OTHER]))
    def take_over(self, which: int, partition: Any) -> None:
        store = self.storages[which].open(partition)
        model = self.model[partition]
        model.take(store.header.token)
        assert store.header.commit == 0
        assert dict(store.header.history) == model.history
        self.check_progress(store.header, model)
        self.owners = [*self.owners[-3:], Owner(model, store, self.storages[which])]

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), changes=change_lists, added=added, published=st.integers(0, 9), answered=st.booleans())
    def commit(self, data: Any, changes: list[Any], added: Any, published: int, answered: bool) -> None:
        owner = self.draw_owner(data)
        commit = self.next_commit(owner, changes, added, published)
        owner.tried = commit
        allowed = owner.partition.allows(owner.token, commit)
        if answered or not allowed:
            assert is_lost(lambda: owner.store.commit(commit)) is not allowed
        else:
            self.harness.commit_unanswered(owner.store, commit)
        if allowed:
            owner.partition.apply(commit)

    @precondition(lambda self: any(owner.tried for owner in self.owners))
    @rule(data=st.data())
    def commit_the_same_again(self, data: Any) -> None:
        owner = data.draw(st.sampled_from([each for each in self.owners if each.tried]))
        done = owner.partition.has(owner.token, owner.tried)
        allowed = owner.partition.allows(owner.token, owner.tried)
        assert is_lost(lambda: owner.store.commit(owner.tried)) is not (done or allowed)
        if done or allowed:
            self.check_progress(owner.store.header, owner.partition)
            assert owner.partition.is_at(owner.store.header)

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), number=st.integers(0, 6))
    def commit_under_any_number(self, data: Any, number: int) -> None:
        owner = self.draw_owner(data)
        commit = Commit(number, f"attempt-{next(self.attempts)}", 99, 99, caught_up_ms=owner.store.header.caught_up_ms)
        if not owner.partition.allows(owner.token, commit):
            assert is_lost(lambda: owner.store.commit(commit))

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def read(self, data: Any) -> None:
        owner = self.draw_owner(data)
        model, store = owner.partition, owner.store
        if not model.is_at(store.header):
            assert all(is_lost(act) for act in (lambda: store.load(UNITS), store.waiting, store.pending))
            return
        assert store.load([*UNITS, "missing"]) == {name: unit.snapshot(name) for name, unit in model.units.items()}
        waiting = {name: unit.waits for name, unit in model.units.items() if unit.waits is not None}
        assert dict(store.waiting()) == waiting
        assert list(store.pending()) == [Pending(number, body) for number, body in sorted(model.pending.items())]
        self.check_progress(store.header, model)

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), ago=st.integers(0, 3), spared=st.sets(st.sampled_from(UNITS)))
    def expire(self, data: Any, ago: int, spared: set[str]) -> None:
        """Spared units are in memory, so they were loaded. A storage may delete expired units with its next commit."""
        owner = self.draw_owner(data)
        until = owner.store.header.caught_up_ms - ago
        if not owner.partition.is_at(owner.store.header):
            assert is_lost(lambda: owner.store.expire(until, spared))
            return
        owner.store.load(sorted(spared))
        while owner.store.expire(until, spared):
            pass
        for name, unit in list(owner.partition.units.items()):
            if unit.waits is None and unit.changed_at <= until and name not in spared:
                del owner.partition.units[name]
        commit = owner.tried = self.next_commit(owner, [], (), 0)
        owner.store.commit(commit)
        owner.partition.apply(commit)

    @rule(which=st.integers(0, 1))
    def end_a_process_and_start_another(self, which: int) -> None:
        self.storages[which].close()
        self.owners = [each for each in self.owners if each.storage is not self.storages[which]]
        self.storages[which] = self.harness.make()

    def next_commit(self, owner: Owner, changes: list[Any], added: Any, published: int) -> Commit:
        number = owner.store.header.commit + 1
        unit_changes = tuple(
            UnitChange(unit, state, waits, stashed, removed, data) for unit, state, waits, stashed, removed, data in changes
        )
        self.now += 1
        progress = (self.now + number, number % 7, number % 5)
        attempt, caught_up_ms = f"attempt-{next(self.attempts)}", owner.store.header.caught_up_ms + self.now % 2
        fields = {"caught_up_ms": caught_up_ms, "orders": "" if number % 3 else f"orders of {attempt}"}
        fields["source_state"] = f"taken by {attempt}" if number % 2 else ""
        return Commit(number, attempt, *progress, unit_changes, added, published, **fields)

    def check_progress(self, header: Header, model: ModelPartition) -> None:
        others = (header.caught_up_ms, header.orders, header.source_state)
        known = (header.next_offset, header.highest_number, header.heal_offset, *others)
        assert known == model.progress

    def draw_owner(self, data: Any) -> Owner:
        return data.draw(st.sampled_from(self.owners))

    def teardown(self) -> None:
        for storage in getattr(self, "storages", ()):
            storage.close()


machine_settings = settings(max_examples=examples(30), stateful_step_count=30)
