"""The Redis server, or the nodes of a Redis Cluster, and the choice of the node for a key."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from redis.crc import key_slot
from redis.exceptions import NoScriptError

from resequencer.storage_port import StorageRefused, StorageUnavailable
from storage.redis.connection import Command, Link
from storage.redis.scripts import FULFILLED, Script
from storage.redis.url import Address, RedisPlace

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
