"""The view of storage `infinispan`: the contract (tests/storage/view_contract.py), on a cache in memory and on a real server."""

from collections.abc import Callable
from contextlib import closing, suppress
from copy import deepcopy
from functools import partial
from random import Random
from uuid import uuid4

import pytest
from hypothesis.stateful import run_state_machine_as_test

from resequencer.storage_port import PartitionStore, Snapshot, StorageRefused, StorageUnavailable, UnitChange, Waits
from servers.infinispan import InfinispanServer
from storage.infinispan.cache import segment_name
from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.storage import ServerSettings
from storage.infinispan.view import InfinispanStorageView
from storage.view_port import UnitView
from tests.storage.contract import PARTITION, WAITS, idle, put, waiting
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import SMALL, InfinispanHarness
from tests.storage.model import machine_settings
from tests.storage.view_contract import Copy, StorageViewContract, ViewMachine, waits_at


def on(server: MemoryServer, **layout: int) -> InfinispanHarness:
    return InfinispanHarness(lambda: MemoryCache(server), lambda: deepcopy((server.values, server.counters)), **layout)


@pytest.fixture
def server() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def real(infinispan: InfinispanServer) -> Callable[..., InfinispanHarness]:
    """Makes a harness on a cache of its own on the real server: in memory, for many commits need not wait for the disk."""
    name = f"view-{uuid4().hex[:12]}"
    infinispan.create_cache(name, {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}})

    def connect() -> InfinispanRest:
        return InfinispanRest(ServerSettings(infinispan.url, name, timeout_ms=120_000))

    def read_all() -> dict[str, bytes]:
        with closing(infinispan.client()) as client:
            keys = client.get(f"/rest/v2/caches/{name}?action=keys").raise_for_status().json()
            counters = [each for each in client.get("/rest/v2/counters").raise_for_status().json() if each.startswith(name)]
            paths = [*(f"caches/{name}/{key}" for key in keys), *(f"counters/{counter}" for counter in counters)]
            return {path: client.get(f"/rest/v2/{path}").raise_for_status().content for path in paths}

    return partial(InfinispanHarness, connect, read_all)


class TestViewContractInMemory(StorageViewContract):
    reads = 100

    @pytest.fixture(params=[{}, SMALL], ids=["as shipped", "small"])
    def harness(self, server, request):
        return on(server, **request.param)


@pytest.mark.slow
class TestInfinispanViewContract(StorageViewContract):
    @pytest.fixture
    def harness(self, real):
        with closing(real()) as harness:
            yield harness


@pytest.mark.nightly("storages")
class TestBusyInfinispanViewContract(StorageViewContract):
    """With a layout that moves what changed after a few commits."""

    @pytest.fixture
    def harness(self, real):
        with closing(real(**SMALL)) as harness:
            yield harness


@pytest.mark.parametrize("layout", [{}, SMALL], ids=["as shipped", "small"])
def test_random_runs_are_as_the_model_says(layout):
    class Machine(ViewMachine):
        def make_harness(self):
            return on(MemoryServer(), **layout)

    run_state_machine_as_test(Machine, settings=machine_settings)


UNITS = [f"unit-{number}" for number in range(20)]


class Interrupted(MemoryCache):
    """Calls `meanwhile` before a value is read that has this kind (`s`, `p`, `l`), at most `times`."""

    def __init__(self, server: MemoryServer, kind: str, meanwhile: Callable[[], None], times: int) -> None:
        super().__init__(server)
        self.kind, self.meanwhile, self.left = f":{kind}:", meanwhile, times

    def get(self, key: str) -> bytes | None:
        if self.kind in key and self.left:
            self.left -= 1
            self.meanwhile()
        return super().get(key)


def filled(harness: InfinispanHarness) -> PartitionStore:
    """With segments, blocks and pages."""
    store = harness.make().open(PARTITION)
    for number, unit in enumerate(UNITS):
        put(store, UnitChange(unit, b"1", waits_at(1), data=b"data"), waiting(f"waiting-{number}"))
    return store


def turned(store: PartitionStore) -> None:
    """Change every unit, in many commits, so that every value that was there is replaced."""
    for round_ in range(3):
        for unit in UNITS:
            put(store, UnitChange(unit, b"2", waits_at(2 + round_)), UnitChange(f"{unit}-new", b"x" * 200))


@pytest.mark.parametrize("kind", ["s", "l", "p"])
def test_a_value_that_was_deleted_in_the_midst_of_a_read_leads_to_the_present_root(server, kind):
    harness = on(server, **SMALL)
    store = filled(harness)
    cache = Interrupted(server, kind, lambda: turned(store), 1)
    view = InfinispanStorageView(cache, harness.settings.namespace)
    found = view.find_unit(PARTITION, "unit-0")
    assert cache.left == 0
    assert found == UnitView(Snapshot("unit-0", b"2", b"data", ()), waits_at(4))


@pytest.mark.parametrize("kind", ["s", "l"])
def test_a_listing_of_what_waits_goes_on_from_the_present_root(server, kind):
    harness = on(server, **SMALL)
    store = filled(harness)
    cache = Interrupted(server, kind, lambda: turned(store), 1)
    copy = Copy(InfinispanStorageView(cache, harness.settings.namespace))
    copy.follow()
    assert cache.left == 0
    copy.follow()
    assert copy.waits == {unit: waits_at(4) for unit in UNITS} | {f"waiting-{number}": WAITS for number in range(20)}


def test_a_listing_whose_unread_blocks_are_dropped_is_void(server):
    """The second block says that a unit of the first one stopped waiting. The partition drops both between their reads."""
    harness = on(server, **SMALL | {"few_units": 10_000})
    store = harness.make().open(PARTITION)

    def fill(name: str) -> None:
        for number in range(12):
            put(store, UnitChange(f"{name}-{number}", b"x" * 200))

    def drop() -> None:
        put(store, *map(idle, ["stays", *(f"kept-{number}" for number in range(12))]))
        for _ in range(30):
            store.expire(10**6, ())
            put(store, UnitChange("filler", b"x" * 300), caught_up_ms=10**6)

    put(store, waiting("stays"), waiting("woken"))
    fill("first")
    put(store, idle("woken"))
    for number in range(12):
        put(store, UnitChange(f"kept-{number}", b"x" * 200, WAITS))
    fill("last")
    view = InfinispanStorageView(Interrupted(server, "l", lambda: None, 0), harness.settings.namespace)
    cache = view._cache
    portions = view.find_waiting(PARTITION, None).portions
    listed = dict(next(portions))
    while "woken" not in listed:
        listed |= next(portions)
    assert listed["woken"] == WAITS
    cache.meanwhile, cache.left = drop, 1
    with pytest.raises(StorageUnavailable, match="faster than it can be read"):
        list(portions)
    copy = Copy(view)
    copy.follow()
    assert copy.waits == dict(store.waiting())


@pytest.mark.slow
def test_a_partition_that_never_holds_still_is_given_up_for_now(server):
    harness = on(server, **SMALL)
    store = filled(harness)
    view = InfinispanStorageView(Interrupted(server, "l", lambda: turned(store), 10**9), harness.settings.namespace)
    with pytest.raises(StorageUnavailable, match="faster than it can be read"):
        view.find_unit(PARTITION, "unit-0")
    with pytest.raises(StorageUnavailable, match="faster than it can be read"):
        list(view.find_waiting(PARTITION, None).portions)


@pytest.mark.parametrize("kind", ["s", "l", "p"])
def test_what_the_cache_has_lost_is_told_at_once(server, kind):
    harness = on(server, **SMALL)
    filled(harness)
    for key in [key for key in server.values if f":{kind}:" in key]:
        del server.values[key]
    view = harness.make_view()
    with pytest.raises(StorageUnavailable, match="is missing"):
        view.find_unit(PARTITION, "waiting-0")
    if kind != "p":
        with pytest.raises(StorageUnavailable, match="is missing"):
            list(view.find_waiting(PARTITION, None).portions)


def test_what_was_forgotten_after_a_loss_is_gone_from_the_copy(server):
    harness = on(server, **SMALL)
    filled(harness)
    copy = Copy(harness.make_view())
    copy.follow()
    assert copy.waits
    server.values.clear()
    assert harness.make().open(PARTITION).header.is_empty
    assert copy.follow().is_whole
    assert copy.waits == {}


def test_changes_come_from_the_segments_of_later_commits_as_long_as_the_window_has_them(server):
    harness = on(server)
    store = filled(harness)
    copy = Copy(harness.make_view())
    copy.follow()
    put(store, idle("unit-0"), waiting("new"))
    put(store, waiting("newer"))
    taken = harness.make().open(PARTITION)
    put(taken, idle("waiting-0"))
    del server.log[:]
    assert not copy.follow().is_whole
    assert [act for act, _ in server.log] == ["find_counter"] * 2 + ["get"] * 3
    assert {"new", "newer"} < copy.waits.keys()
    assert not {"unit-0", "waiting-0"} & copy.waits.keys()


@pytest.mark.parametrize("look", ["find_header", "find_waiting", "find_unit"])
def test_a_view_remembers_no_segments_that_left_the_window_however_often_it_looks(server, look):
    harness = on(server, **SMALL)
    store = filled(harness)
    view = harness.make_view()
    copy = Copy(view)
    looks = {
        "find_header": lambda: view.find_header(PARTITION),
        "find_waiting": copy.follow,
        "find_unit": lambda: view.find_unit(PARTITION, "unit-0"),
    }
    for number in range(50):
        put(store, waiting(f"new-{number}"))
        looks[look]()
    remembered = view._partitions[PARTITION]
    root = remembered._from_root(lambda root: root)
    assert remembered._units.keys() <= {segment_name(root.version), *(row.name for row in root.manifest.window)}


def test_nothing_new_costs_one_request(server):
    harness = on(server)
    filled(harness)
    copy = Copy(harness.make_view())
    copy.follow()
    del server.log[:]
    assert copy.follow() is None
    assert [act for act, _ in server.log] == ["find_counter"]


def test_a_unit_costs_few_requests_once_the_partition_is_known(server):
    harness = on(server, **SMALL)
    store = filled(harness)
    view = harness.make_view()
    view.find_unit(PARTITION, "unit-0")
    del server.log[:]
    view.find_unit(PARTITION, "missing")
    assert [act for act, _ in server.log] == ["find_counter", "get"]
    put(store, waiting("unit-1"))
    del server.log[:]
    assert view.find_unit(PARTITION, "unit-1").waits == WAITS
    assert len([key for act, key in server.log if act == "get"]) <= 6


def test_a_value_of_another_program_is_refused(server):
    harness = on(server)
    filled(harness)
    for key in server.values:
        server.values[key] = b"not ours"
    with pytest.raises(StorageRefused, match="is truncated"):
        harness.make_view().find_header(PARTITION)


class Restless(MemoryCache):
    """Calls `meanwhile` before some reads, by chance."""

    def __init__(self, server: MemoryServer, chance: Random, meanwhile: Callable[[], None]) -> None:
        super().__init__(server)
        self.chance, self.meanwhile, self.share = chance, meanwhile, 0.0

    def get(self, key: str) -> bytes | None:
        if self.chance.random() < self.share:
            self.meanwhile()
        return super().get(key)


class RestlessOwner:
    """Changes, expires and takes over at random. It notes each state of a unit with its waits, None for a unit that expired."""

    def __init__(self, harness: InfinispanHarness, chance: Random) -> None:
        self.harness, self.chance, self.number, self.clock = harness, chance, 0, 0
        self.store = harness.make().open(PARTITION)
        self.states: dict[str, list[tuple[bytes, Waits | None] | None]] = {unit: [None] for unit in UNITS}

    def act(self) -> None:
        self.number += 1
        if self.chance.random() < 0.03:
            self.store = self.harness.make().open(PARTITION)
        elif self.chance.random() < 0.1:
            self.store.expire(self.clock, ())
            self._commit()
            for unit in UNITS:
                if not self.store.load([unit]) and self.states[unit][-1] is not None:
                    self.states[unit].append(None)
        else:
            self._commit(*self.chance.sample(UNITS, self.chance.randint(1, 4)))

    def _commit(self, *units: str) -> None:
        self.clock += 1
        changes = [UnitChange(unit, b"%d" % self.number, self.chance.choice((waits_at(self.number), None))) for unit in units]
        fillers = [UnitChange(f"filler-{self.number}", b"x" * self.chance.choice((10, 300)))]
        put(self.store, *changes, *fillers, caught_up_ms=self.clock)
        for change in changes:
            self.states[change.unit].append((change.state, change.waits))


@pytest.mark.parametrize("seed", range(8))
def test_whatever_an_owner_does_in_the_midst_of_reads_units_are_of_one_commit_and_copies_end_right(server, seed):
    read_beside_an_owner(server, seed)


@pytest.mark.nightly("storages", minutes=1)
def test_whatever_the_seed_units_are_of_one_commit_and_copies_end_right(search):
    for seed in search.seeds():
        read_beside_an_owner(MemoryServer(), seed)


def read_beside_an_owner(server, seed):
    chance = Random(seed)
    harness = on(server, **SMALL)
    owner = RestlessOwner(harness, chance)
    cache = Restless(server, chance, owner.act)
    view = InfinispanStorageView(cache, harness.settings.namespace)
    following = Copy(view)
    for _ in range(30):
        for _ in range(chance.randint(0, 10)):
            owner.act()
        cache.share = chance.choice((0.02, 0.1, 0.3))
        unit = chance.choice(UNITS)
        known = len(owner.states[unit])
        with suppress(StorageUnavailable):
            found = view.find_unit(PARTITION, unit)
            seen = None if found is None else (found.snapshot.state, found.waits)
            assert seen in owner.states[unit][known - 1 :]
        whole = Copy(view)
        for copy in (following, whole):
            copy.follow()
        cache.share = 0.0
        for copy in (following, whole):
            copy.follow()
            assert copy.waits == dict(owner.store.waiting())
