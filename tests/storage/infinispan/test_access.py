"""Storage `infinispan`: logins, the choice of the cache, and failures of its server; on real servers."""

import gc
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from threading import Event, Thread

import pytest
from harness.waiting import wait_until

from resequencer.errors import OwnershipLost
from resequencer.record import Partition
from resequencer.storage_port import Pending, StorageRefused, StorageUnavailable
from servers.certificates import Certificates
from servers.infinispan import InfinispanServer, InfinispanSettings
from storage.infinispan.cache import ended
from storage.infinispan.rest_client import InfinispanRest
from storage.infinispan.storage import InfinispanStorage, LayoutSettings, ServerSettings
from tests.storage.contract import PARTITION, following, idle, put, waiting
from tests.storage.infinispan.memory import MemoryCache, MemoryServer
from tests.storage.infinispan.storages import InfinispanHarness
from tests.storage.tls_proxy import tls_in_front_of

pytestmark = pytest.mark.slow

_TRIES = 50
IN_MEMORY = {"local-cache": {"encoding": {"media-type": "application/octet-stream"}}}


def rest(server, **changes):
    return InfinispanRest(ServerSettings(**{"url": server.url, "cache": "state", "timeout_ms": 30_000} | changes))


def harness_on(server, **changes):
    return InfinispanHarness(lambda: rest(server, **changes))


@pytest.fixture(scope="module")
def secured(server_directory):
    """A server that requires a login."""
    server = InfinispanServer(server_directory / "secured-infinispan", InfinispanSettings(users={"app": "pass:wörd"})).start()
    yield server
    server.kill()


def answered(call):
    """A server that was just started may need time for its first answer on a busy machine."""
    for _ in range(_TRIES):
        with suppress(StorageUnavailable):
            return call()
    raise AssertionError("never answered")


# Logins.


def test_a_user_that_the_server_knows_is_let_in_and_asked_once(secured):
    with closing(rest(secured, username="app", password="pass:wörd")) as cache:
        cache.set_up()
        asked = []
        cache._client.event_hooks = {"response": [asked.append]}
        for number in range(10):
            cache.put(f"key-{number}", b"value")
        assert [each.status_code for each in asked] == [204] * 10
        assert "pass" not in "".join(map(str, [each.request.headers for each in asked]))


def test_a_user_is_let_in_for_all_that_is_made_side_by_side(secured, fresh_name):
    with closing(harness_on(secured, cache=fresh_name("logins"), username="app", password="pass:wörd").make()) as storage:
        stores = [storage.open(Partition("in", number)) for number in range(8)]
        for _ in range(25):
            for call in storage.side_by_side([partial(each.commit, following(each, idle("a"))) for each in stores]):
                call()
    assert [each.header.commit for each in stores] == [25] * 8


@pytest.mark.parametrize("login", [{}, {"username": "app", "password": "wrong"}, {"username": "other_owner", "password": "x"}])
def test_whom_the_server_does_not_know_is_told_which_keys_to_set(secured, login):
    with (
        closing(rest(secured, **login)) as cache,
        pytest.raises(StorageRefused, match=r"infinispan\.username and password") as refused,
    ):
        cache.set_up()
    assert "wrong" not in str(refused.value)


def test_tls_is_spoken_to_whom_the_authority_signed_for_and_refused_otherwise(secured, tmp_path):
    certificates = Certificates.make(tmp_path)
    login = {"username": "app", "password": "pass:wörd"}
    with tls_in_front_of(secured.ports["infinispan"], certificates) as port:
        url = f"https://localhost:{port}"
        with closing(rest(secured, url=url, ca_file=certificates.authority, **login)) as cache:
            cache.set_up()
            cache.put("key", b"value")
            assert cache.get("key") == b"value"
        with closing(rest(secured, url=url, **login)) as cache, pytest.raises(StorageRefused, match=r"infinispan\.tls\.ca-file"):
            cache.get("key")


# Caches.


def test_a_cache_that_is_not_there_is_made_on_disk(infinispan, fresh_name, caplog):
    caplog.set_level(logging.INFO, "resequencer.storage")
    name = fresh_name("made")
    with closing(rest(infinispan, cache=name)) as cache:
        assert cache.preflight() == [
            f"cache {name}: it does not exist and will be created; for that the user needs the role deployer or admin"
        ]
        cache.set_up()
        cache.set_up()
        assert cache.preflight() == [f"cache {name}: on one server, on disk, synced with every write"]
    messages = [record.getMessage() for record in caplog.records if record.name == "resequencer.storage"]
    assert messages == [f"created cache {name}", f"cache {name}: on one server, on disk, synced with every write"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"expiration": {"lifespan": 100_000}}, r"expire \(lifespan 100000\)"),
        ({"expiration": {"max-idle": 5_000}}, r"expire \(max-idle 5000\)"),
        ({"memory": {"max-count": 100, "when-full": "REMOVE"}}, "remove when-full, or put it on disk"),
        ({"encoding": {"media-type": "application/x-protostream"}}, "create it with the media-type application/octet-stream"),
    ],
)
def test_a_cache_in_which_something_would_vanish_or_change_is_refused(infinispan, fresh_name, settings, text):
    name = fresh_name("refused")
    infinispan.create_cache(name, {"local-cache": IN_MEMORY["local-cache"] | settings})
    with closing(rest(infinispan, cache=name)) as cache, pytest.raises(StorageRefused, match=text):
        cache.set_up()


def test_eviction_from_memory_of_what_is_on_disk_is_no_eviction(infinispan, fresh_name):
    name = fresh_name("evicting")
    on_disk = {"persistence": {"file-store": {"purge": False}}, "memory": {"max-count": 2, "when-full": "REMOVE"}}
    infinispan.create_cache(name, {"local-cache": IN_MEMORY["local-cache"] | on_disk})
    with closing(rest(infinispan, cache=name)) as cache:
        cache.set_up()
        for number in range(20):
            cache.put(f"{number}", b"%d" % number)
        assert [cache.get(f"{number}") for number in range(20)] == [b"%d" % number for number in range(20)]


def test_a_cache_in_memory_is_used_with_a_warning(infinispan, fresh_name, caplog):
    name = fresh_name("memory")
    infinispan.create_cache(name, IN_MEMORY)
    with closing(rest(infinispan, cache=name)) as cache:
        cache.set_up()
    assert "it is not on disk: when the server restarts, all state is lost" in caplog.text


def test_a_cache_that_was_removed_is_made_again_and_its_loss_is_noticed(infinispan, fresh_name):
    name = fresh_name("removed")
    harness = harness_on(infinispan, cache=name)
    store = harness.make().open(PARTITION)
    put(store, idle("a"), waiting("b"))
    with infinispan.client() as client:
        client.delete(f"/rest/v2/caches/{name}").raise_for_status()
    put(store, idle("c"))
    taken = harness.make().open(PARTITION)
    assert (taken.header.is_empty, taken.waiting()) == (True, [])
    harness.close()


def test_a_server_that_is_none_of_infinispan_is_refused(infinispan):
    with (
        closing(rest(infinispan, url=f"{infinispan.url}/elsewhere")) as cache,
        pytest.raises(StorageRefused, match=r"infinispan\.url"),
    ):
        cache.set_up()


# A zombie.


def test_a_zombie_that_writes_late_changes_nothing_and_clears_away_what_it_wrote(infinispan, fresh_name):
    name = fresh_name("zombie")
    harness = harness_on(infinispan, cache=name)
    zombie = harness.make().open(PARTITION)
    put(zombie, idle("a"), added=(Pending(1, b"one"),), highest_number=1)
    late, cache = following(zombie, idle("zombie"), idle("a")), zombie._link._cache
    move, taken = cache.compare_and_set, []

    def too_late(*arguments):
        """All values of the commit are written. Before the counter moves, another owner takes over and commits."""
        taken.append(harness.make().open(PARTITION))
        put(taken[0], idle("b"))
        return move(*arguments)

    cache.compare_and_set = too_late
    with pytest.raises(OwnershipLost):
        zombie.commit(late)
    assert taken[0].load(["a", "b", "zombie"]).keys() == {"a", "b"}
    put(taken[0], idle("c"))
    with infinispan.client() as client:
        keys = client.get(f"/rest/v2/caches/{name}?action=keys").json()
    assert [key for key in keys if zombie.header.token in key] == [f"{zombie._link.name}:s:{zombie.header.token}:1"]
    harness.close()


# Failures of servers.


def test_what_was_answered_outlives_a_kill_of_the_server(struck_server, fresh_name):
    server = struck_server(InfinispanServer)
    harness = harness_on(server, cache=fresh_name("state"))
    store = harness.make().open(PARTITION)
    for number in range(50):
        put(store, idle(f"unit-{number}"), waiting("w"), added=(Pending(number, b"blocks"),), published=number - 1)
        if number == 25:
            server.kill()
            server.start()
    server.kill()
    with pytest.raises(StorageUnavailable):
        store.load(["w"])
    server.start()
    taken = harness.make().open(PARTITION)
    assert dict(taken.header.history)[store.header.token] == 50
    assert len(taken.load([f"unit-{number}" for number in range(50)])) == 50
    assert ([unit for unit, _ in taken.waiting()], taken.pending()) == (["w"], [Pending(49, b"blocks")])
    harness.close()


def test_a_memory_that_restarted_is_noticed(struck_server, fresh_name):
    server = struck_server(InfinispanServer)
    cache = fresh_name("state")
    server.create_cache(cache, IN_MEMORY)
    harness = harness_on(server, cache=cache)
    store = harness.make().open(PARTITION)
    put(store, idle("a"), waiting("b"))
    server.kill()
    server.start()
    taken = harness.make().open(PARTITION)
    assert (taken.header.is_empty, taken.waiting(), taken.load(["a", "b"])) == (True, [], {})
    harness.close()


def test_a_server_that_is_paused_is_unavailable_after_the_time_out_and_the_same_commit_counts_later(struck_server, fresh_name):
    server = struck_server(InfinispanServer)
    cache = fresh_name("state")
    harness = harness_on(server, cache=cache, timeout_ms=500)
    storage = harness.make()
    store = answered(lambda: storage.open(PARTITION))
    first = following(store, idle("a"))
    answered(lambda: store.commit(first))
    second = following(store, idle("b"))
    server.pause()
    for _ in range(2):
        with pytest.raises(StorageUnavailable, match=rf"PUT /rest/v2/caches/{cache}/.*: timed out"):
            store.commit(second)
    server.resume()
    answered(lambda: store.commit(second))
    assert answered(lambda: store.load(["a", "b"])).keys() == {"a", "b"}
    assert store.header.commit == 2
    harness.close()


def test_requests_leave_nothing_to_the_garbage_collector(infinispan, fresh_name):
    """A worker's garbage collector runs rarely, and bodies are large."""
    with closing(rest(infinispan, cache=fresh_name("cycles"))) as cache:
        cache.set_up()
        cache.create_counter("cycles")

        def ask():
            cache.put("key", b"value")
            cache.get("key")
            cache.get("missing")
            cache.compare_and_set("cycles", 0, 0)
            cache.begin([partial(cache.delete, key) for key in ("key", "another")])()

        ask()
        gc.collect()
        for _ in range(10):
            ask()
        assert gc.collect() < 10


def test_what_has_not_begun_is_not_waited_for_after_a_failure():
    """A server that does not answer would be waited for as often as there are requests."""
    made, begun, release = list[int](), Event(), Event()

    def fail() -> None:
        begun.wait()
        raise StorageUnavailable("no answer")

    def be_slow(number: int) -> None:
        made.append(number)
        begun.set()
        release.wait()

    with ThreadPoolExecutor(3) as threads:
        futures = [threads.submit(fail), *[threads.submit(be_slow, number) for number in range(20)]]
        other = Thread(target=lambda: (wait_until(futures[-1].cancelled, "what waits is given up"), release.set()))
        other.start()
        assert ended(futures) is futures
        other.join()
    assert len(made) <= 3
    assert all(each.done() for each in futures)


def test_what_was_given_up_side_by_side_is_made_when_it_is_asked_for():
    made = []

    def fail(number: int) -> None:
        made.append(number)
        raise StorageUnavailable("no answer")

    with closing(InfinispanStorage(LayoutSettings("nowhere"), MemoryCache(MemoryServer()), str)) as storage:
        for call in storage.side_by_side([partial(fail, number) for number in range(30)]):
            with pytest.raises(StorageUnavailable):
                call()
    assert sorted(made) == list(range(30))


def test_what_a_closed_connection_gave_up_is_no_success_and_is_not_waited_for():
    """As if it was written, a commit would name pages that are not there."""
    begun, release = Event(), Event()

    def be_slow() -> None:
        begun.set()
        release.wait()

    cache = InfinispanRest(ServerSettings("http://127.0.0.1:1", "nothing"))
    wait_for_it = cache.begin([be_slow] * 30)
    begun.wait()
    other = Thread(target=cache.close)
    other.start()
    (futures,) = wait_for_it.args
    wait_until(futures[-1].cancelled, "what has not begun is given up")
    release.set()
    other.join()
    with pytest.raises(StorageUnavailable, match="closed before all was asked"):
        wait_for_it()
