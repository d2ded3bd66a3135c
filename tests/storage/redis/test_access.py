"""Access to a Redis server: users and their rights, TLS, a Unix socket."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from resequencer.storage_port import Pending, StorageRefused, StorageUnavailable, UnitChange
from servers.redis import RedisServer
from storage.redis.settings import RedisLogin, RedisPlace, read_place
from tests.storage.contract import WAITS, idle, put

pytestmark = pytest.mark.slow

SERVERS = Path("docs/servers.md").read_text(encoding="utf-8")
RIGHTS = re.search(r"^ACL SETUSER resequencer on >PASSWORD (.*)$", SERVERS, re.MULTILINE)[1]


class WithSocket(RedisServer):
    def _configuration(self, data: Path) -> list[str]:
        return [*super()._configuration(data), "unixsocket socket"]


def as_user(own, name: str, rights: str, password: str = "secret") -> RedisPlace:
    """A user with these rights in the namespace of the test."""
    rights = rights.replace("{payment-status-notification:", f"{{{own.harness.namespace}:")
    own.client.execute_command("ACL", "SETUSER", name, "on", f">{password}", *rights.split())
    return read_place(own.harness.url, RedisLogin(name, password))


def test_the_documented_rights_are_enough_for_everything(own_redis):
    own = own_redis()
    store = own.open(place=as_user(own, "resequencer", RIGHTS), wait_replicas=0)
    put(store, UnitChange("a", b"", WAITS, data=b"data"), idle("b"), added=(Pending(1, b"one"),), highest_number=1)
    put(store, UnitChange("a", b"", WAITS, (), (1,)), published=1)
    assert (len(store.load("abc")), len(store.waiting()), len(store.pending())) == (2, 1, 0)
    assert (store.expire(0, ()), store.expire(0, ())) == (1, 0)
    # As an interrupted rebuild of the index leaves it.
    own.client.hset(f"{{{own.harness.namespace}:IPF_PROCESSING_DATA:0}}:header", "idle", "")
    put(own.open(place=as_user(own, "resequencer", RIGHTS)), idle("b"))
    with pytest.raises(StorageUnavailable, match="0 of 1 replicas"):
        put(own.open(place=as_user(own, "resequencer", RIGHTS), wait_replicas=1))


@pytest.mark.parametrize("right", sorted({each for each in RIGHTS.split() if each.startswith("+")} - {"+config|get", "+wait"}))
def test_a_right_that_is_missing_is_told_before_anything_is_written(own_redis, right):
    if right in ("+select", "+cluster|slots", "+eval"):
        pytest.skip("needed for another database, for a cluster, or once")
    own = own_redis()
    with pytest.raises(StorageRefused, match=r"docs/servers\.md"):
        own.open(place=as_user(own, "resequencer", f"{RIGHTS} -{right[1:]}"))
    assert own.client.dbsize() == 0


def test_a_namespace_that_the_user_may_not_touch_is_refused(own_redis):
    own = own_redis()
    place = as_user(own, "resequencer", RIGHTS)
    with pytest.raises(StorageRefused, match=r"docs/servers\.md"):
        own.open(place=place, namespace="another")


@pytest.mark.parametrize(
    "login", [RedisLogin(), RedisLogin("app", "wrong"), RedisLogin("stranger", "secret"), RedisLogin("", "secret")]
)
def test_a_wrong_login_is_refused_and_the_password_not_told(own_redis, login):
    own = own_redis(user="app", password="secret")
    with pytest.raises(StorageRefused, match=r"check storage\.redis\.username and password") as refused:
        own.open(place=read_place(f"redis://127.0.0.1:{own.server.ports['redis']}", login))
    assert "secret" not in str(refused.value)
    assert "wrong" not in str(refused.value).replace("WRONGPASS", "")


def test_user_and_password_may_stand_in_the_url(own_redis):
    own = own_redis()
    as_user(own, "app", RIGHTS, "s€cret@:/")
    port = own.server.ports["redis"]
    store = own.open(place=read_place(f"redis://app:s%E2%82%ACcret%40%3A%2F@127.0.0.1:{port}/0", RedisLogin()))
    put(store, idle("a"))


def test_a_user_who_is_taken_away_ends_what_he_does(own_redis):
    own = own_redis()
    store = own.open(place=as_user(own, "resequencer", RIGHTS))
    own.client.execute_command("ACL", "DELUSER", "resequencer")
    with pytest.raises(StorageUnavailable):
        put(store, idle("a"))
    with pytest.raises(StorageRefused, match="username and password"):
        put(store, idle("a"))


def test_tls_is_spoken_with_a_server_whose_authority_is_named(own_redis):
    own = own_redis(tls=True, user="app", password="secret")
    url = own.server.url.partition("?")[0]
    authority = own.server.certificates.authority
    put(own.open(place=read_place(url, RedisLogin(ca_file=authority))), idle("a"))
    with pytest.raises(StorageRefused, match=r"set storage\.redis\.tls\.ca-file to the authority that signed"):
        own.open(place=read_place(url, RedisLogin()))


def test_a_certificate_for_another_name_is_refused(own_redis):
    own = own_redis(tls=True)
    place = read_place(own.server.url.partition("?")[0], RedisLogin(ca_file=own.server.certificates.authority))
    elsewhere = replace(place, addresses=(("127.0.0.2", own.server.ports["redis"]),))
    own.client.config_set("bind", "127.0.0.1 127.0.0.2")
    with pytest.raises(StorageRefused, match=r"127\.0\.0\.2"):
        own.open(place=elsewhere)


def test_a_client_that_does_not_speak_tls_hears_nothing(own_redis):
    own = own_redis(tls=True)
    with pytest.raises(StorageUnavailable):
        own.open(place=read_place(f"redis://127.0.0.1:{own.server.ports['redis']}", RedisLogin()))


def test_a_unix_socket_and_another_database_are_used_as_the_url_says(own_redis, monkeypatch):
    own = own_redis(WithSocket)
    monkeypatch.chdir(own.server.directory / "data")  # A socket's path may have 107 characters.
    store = own.open(place=read_place("unix:///proc/self/cwd/socket?db=3", RedisLogin()))
    put(store, idle("a"))
    assert own.client.info("keyspace") == {"db3": own.client.info("keyspace")["db3"]}
    assert store.load(["a"]).keys() == {"a"}
