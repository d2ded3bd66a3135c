"""The view of the Redis storage, by scripts that the server keeps from writing."""

from collections.abc import Iterator

from domain.record import Partition
from storage.marker import marker_of
from storage.port import Header, StorageUnavailable
from storage.redis.header import read_header
from storage.redis.keys import RedisKeys
from storage.redis.partition import snapshot_of, torn, waits_of
from storage.redis.scripts import VIEW_HEADER, VIEW_SCAN, VIEW_UNIT
from storage.redis.servers import RedisServers
from storage.redis.settings import RedisSettings
from storage.view_port import UnitView, WaitingChanges, WaitingPortion, whole_of_nothing

_FIELDS_AT_ONCE = 1_000
"""A portion holds the server for one or two milliseconds; between portions it serves its other clients, the owner among them."""


class RedisStorageView:
    """A user who may only read is enough (docs/operations.md). It needs Redis 7.0, the storage itself does not.

    The waiting units are always listed whole, because Redis keeps no order of their changes.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._namespace = settings.namespace
        self._servers = RedisServers(settings.place, settings.timeout_ms)

    def find_header(self, partition: Partition) -> Header | None:
        key = RedisKeys(self._namespace, partition).header
        return read_header(key, self._servers.run(VIEW_HEADER, [key], ())).header

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        keys = RedisKeys(self._namespace, partition)
        (key,) = keys.units([unit])
        header, fields, waits = self._servers.run(VIEW_UNIT, [keys.header, keys.waiting, key], (unit.encode(),))
        read_header(keys.header, header)
        if not fields:
            if waits is not None:
                raise torn(key)
            return None
        return UnitView(snapshot_of(unit, fields), None if waits is None else waits_of(waits))

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        header = self.find_header(partition)
        if header is None:
            return whole_of_nothing() if marker else None
        if marker == marker_of(header):
            return None
        return WaitingChanges(marker_of(header), True, self._portions(RedisKeys(self._namespace, partition)))

    def close(self) -> None:
        self._servers.close()

    def _portions(self, keys: RedisKeys) -> Iterator[WaitingPortion]:
        server, cursor = self._run_id(keys), b""
        while cursor != b"0":
            cursor, flat = self._servers.run(VIEW_SCAN, [keys.waiting], (cursor or b"0", _FIELDS_AT_ONCE))
            if flat:
                yield [(unit.decode(), waits_of(waits)) for unit, waits in zip(flat[::2], flat[1::2], strict=True)]
        # A cursor means nothing to a server that was started anew, or that took over.
        if self._run_id(keys) != server:
            raise StorageUnavailable(f"{keys.tag}: its server was restarted or replaced while the waiting units were read")

    def _run_id(self, keys: RedisKeys) -> str:
        return self._servers.facts(keys.header).get("run_id", "")
