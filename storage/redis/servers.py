"""The Redis server, or the nodes of a Redis Cluster, and the choice of the node for a key."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from ssl import SSLCertVerificationError
from typing import Any

from redis import Connection, SSLConnection, UnixDomainSocketConnection, exceptions
from redis.crc import key_slot
from redis.exceptions import NoScriptError, ResponseError

from resequencer.storage_port import StorageRefused, StorageUnavailable, StorageWithheld
from storage.redis.scripts import FULFILLED, Script
from storage.redis.settings import Address, RedisPlace, address_text

_RIGHTS = "give the user the rights that docs/servers.md lists"
_LOGIN = "check storage.redis.username and password, or those in the url"

_GOES_AWAY = {
    "ASK": "the slot is being moved to another node",
    "BUSY": "a script of another client blocks it",
    "CLUSTERDOWN": "the cluster does not serve all slots",
    "LOADING": "it is reading its data from the disk",
    "MASTERDOWN": "it is a replica without its master",
    "MISCONF": "it cannot write to its disk and refuses writes",
    "MOVED": "the slot has moved to another node",
    "NOREPLICAS": "fewer replicas are connected than it requires for a write",
    "OOM": "its memory is full (maxmemory): raise it; the service never drops waiting envelopes to free memory",
    "READONLY": "it is a replica; storage.redis.url must be that of the master",
    "TRYAGAIN": "the slot is being moved to another node",
    "UNKILLABLE": "a script of another client blocks it",
}
_FORBIDDEN_IN_SCRIPT = "user executing the script can't"
"""The text of NOPERM from scripts, in servers before 7.2."""

_UNKNOWN_READ_ONLY_SCRIPT = re.compile("(ERR )?unknown command .EVAL(SHA)?_RO", re.IGNORECASE)
_NO_SUCH_DATABASE = ("SELECT is not allowed in cluster mode", "DB index is out of range")
_NEEDS_A_PERSON = {
    "DENIED": "it is in protected mode; set a password and bind it to an address, or reach it over loopback",
    "NOAUTH": _LOGIN,
    "NOPERM": _RIGHTS,
    "WRONGPASS": _LOGIN,
    "WRONGTYPE": "a key of this namespace was written by another program; use a storage.namespace of your own, or another server",
}


@contextmanager
def translated(server: str) -> Iterator[None]:
    """Talk to `server`, and translate its errors. An error of neither the server nor the network passes unchanged.

    Raises:
        StorageUnavailable: No answer in time, or a temporary error; the commands may have been executed.
        StorageRefused: Waiting does not help: no login, no right, a foreign key, an untrusted certificate.
    """
    try:
        yield
    except exceptions.DataError:
        raise
    except exceptions.RedisError as error:
        raise _meaning(server, error) from error


def _meaning(server: str, error: exceptions.RedisError) -> StorageRefused | StorageUnavailable:
    text = str(error).rstrip(".")  # Some of the client's texts are sentences, and all of ours go on behind them.
    code = "NOPERM" if _FORBIDDEN_IN_SCRIPT in str(error) else error.status_code or str(error).partition(" ")[0]
    if code in _GOES_AWAY:
        return StorageUnavailable(f"{server}: {text}; {_GOES_AWAY[code]}")
    remedy = _find_remedy(code, error)
    if remedy is None and isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError):
        return StorageUnavailable(f"{server}: {text}")
    kind = StorageWithheld if remedy in (_LOGIN, _RIGHTS) else StorageRefused
    return kind(server, f"{text}; {remedy or 'this answer is not expected of a Redis server from version 6.2 on'}")


def _find_remedy(code: str, error: exceptions.RedisError) -> str | None:
    if code in _NEEDS_A_PERSON:
        return _NEEDS_A_PERSON[code]
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthenticationWrongNumberOfArgsError):
        return _LOGIN
    if _UNKNOWN_READ_ONLY_SCRIPT.match(str(error)):
        return "the view of operators needs Redis 7.0 or later, or Valkey; the service itself does not"
    if isinstance(error.__context__, SSLCertVerificationError):
        return "set storage.redis.tls.ca-file to the authority that signed the certificate"
    if str(error).startswith(_NO_SUCH_DATABASE):
        return "change the database number at the end of storage.redis.url, or remove it: a cluster has only 0"
    return None


Command = Sequence[bytes | str | int]


class Link:
    """One connection, opened on first use, closed after any error, and reopened by the next call. Used from one thread.

    redis-py's clients repeat commands on their own, over any connection of a pool. Here the caller must know what was sent, and
    `WAIT` refers to the connection that it is sent over.
    """

    def __init__(self, place: RedisPlace, address: Address, timeout_ms: int) -> None:
        self.address = address
        self.name = f"Redis {address_text(address)}"
        self._make = _maker(place, address, timeout_ms / 1_000)
        self._connection: Any = None

    def ask(self, *commands: Command) -> list[Any]:
        """Send commands in one packet and return their answers. A `NoScriptError` is returned; any other error is raised.

        Raises:
            StorageUnavailable, StorageRefused: As `translated`.
        """
        with translated(self.name):
            try:
                return self._ask(commands)
            except BaseException:
                # A late answer must not be taken for the answer to the next command.
                self.close()
                raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _ask(self, commands: Sequence[Command]) -> list[Any]:
        if self._connection is None:
            self._connection = self._make()
            self._connection.connect()
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        answers = [self._read() for _ in commands]
        for answer in answers:
            if isinstance(answer, ResponseError) and not isinstance(answer, NoScriptError):
                raise answer
        return answers

    def _read(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error


def _maker(place: RedisPlace, address: Address, timeout: float) -> Callable[[], Any]:
    host, port = address
    kind: Any = UnixDomainSocketConnection if place.is_socket else SSLConnection if place.is_tls else Connection
    where = {"path": host} if place.is_socket else {"host": host, "port": port, "socket_keepalive": True}
    bounds = {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    return partial(kind, **where, **bounds, **place.options, protocol=2, driver_info=None)


ServerFacts = Mapping[str, str]
"""The fields of INFO by name."""

_KEYS_AT_ONCE = 10_000

_Slots = Sequence[tuple[int, int, Address]]


class RedisServers:
    """One link per server, opened on first use. After any failure the slots are looked up again. Used from one thread.

    Each method raises StorageUnavailable and StorageRefused.
    """

    def __init__(self, place: RedisPlace, timeout_ms: int) -> None:
        self._place = place
        self._timeout_ms = timeout_ms
        self._links: dict[Address, Link] = {}
        self._slots: _Slots | None = None

    def run(self, script: Script, keys: Sequence[bytes], arguments: Sequence[bytes | str | int], replicas: int = 0) -> Any:
        """Run a script, and return its answer once `replicas` replicas have its writes.

        Raises:
            StorageUnavailable: Also if fewer replicas have the writes within half the time-out. The master has them all the same.
        """
        called = (len(keys), *keys, *arguments)
        wait: list[Command] = [("WAIT", replicas, self._timeout_ms // 2)] if replicas else []
        answer, *acknowledged = self._ask(keys[0], (script.by_digest, script.sha, *called), *wait)
        if isinstance(answer, NoScriptError):
            answer, *acknowledged = self._ask(keys[0], (script.by_text, script.text, *called), *wait)
        if acknowledged and acknowledged[0] < replicas and answer[0] in FULFILLED:
            text = f"{acknowledged[0]} of {replicas} replicas (wait-replicas) acknowledged in time"
            raise StorageUnavailable(f"{self.name(keys[0])}: {text}")
        return answer

    def scan(self, prefix: bytes) -> Iterator[bytes]:
        """Yield the keys with this prefix, from all keys of their server. A key may come twice. `prefix` has none of `?*[]\\`."""
        cursor = b""
        while cursor != b"0":
            cursor, found = self._ask(prefix, ("SCAN", cursor or b"0", "MATCH", prefix + b"*", "COUNT", _KEYS_AT_ONCE))[0]
            yield from found

    def facts(self, key: bytes) -> ServerFacts:
        """Return the INFO of the server of this key."""
        return _facts(self._ask(key, ("INFO",))[0])

    def find_setting(self, key: bytes, setting: str) -> str | None:
        """Return a setting of the server of this key, None if the user may not read it."""
        try:
            answer = self._ask(key, ("CONFIG", "GET", setting))[0]
        except StorageRefused:
            return None
        return answer[1].decode() if len(answer) == 2 else None

    def name(self, key: bytes) -> str:
        return self._link(key).name

    def close(self) -> None:
        for link in self._links.values():
            link.close()
        self._links.clear()
        self._slots = None

    def _ask(self, key: bytes, *commands: Command) -> list[Any]:
        link = self._link(key)
        try:
            return link.ask(*commands)
        except (StorageUnavailable, StorageRefused):
            self._links.pop(link.address, None)
            self._slots = None
            raise

    def _link(self, key: bytes) -> Link:
        if self._slots is None:
            self._slots = self._look_up()
        slot = key_slot(key)
        for first, last, address in self._slots:
            if first <= slot <= last:
                return self._link_to(address)
        raise StorageUnavailable(f"Redis Cluster: no node serves slot {slot}")

    def _look_up(self) -> _Slots:
        """Look the slots up at the first node that answers: known nodes first, then those of the configuration."""
        failure: StorageUnavailable | None = None
        for address in dict.fromkeys((*self._links, *self._place.addresses)):
            try:
                return self._look_up_at(self._link_to(address))
            except StorageUnavailable as error:
                self._links.pop(address).close()
                failure = failure or error
        assert failure is not None
        raise failure

    def _look_up_at(self, link: Link) -> _Slots:
        facts = _facts(link.ask(("INFO", "server"))[0])
        mode = facts.get("redis_mode", facts.get("server_mode"))  # The second is Valkey's.
        if mode == "cluster":
            return list(_slots(link.ask(("CLUSTER", "SLOTS"))[0], link.address))
        if mode == "sentinel":
            raise StorageRefused(link.name, "this is a Sentinel; set the url to the master, with a name that follows failovers")
        if len(self._place.addresses) > 1:
            raise StorageRefused(link.name, "this is a single server, but the url names several hosts, as for a cluster")
        return [(0, 16_383, link.address)]

    def _link_to(self, address: Address) -> Link:
        if address not in self._links:
            self._links[address] = Link(self._place, address, self._timeout_ms)
        return self._links[address]


def _facts(info: bytes) -> ServerFacts:
    lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
    return {name: value for name, separator, value in lines if separator}


def _slots(ranges: Iterable[Sequence[Any]], asked: Address) -> Iterator[tuple[int, int, Address]]:
    """Yield the slot ranges. A node that does not know its own address gets the address under which it was asked."""
    for first, last, master, *_ in ranges:
        host = (master[0] or b"").decode() or asked[0]
        yield first, last, (host, master[1])
