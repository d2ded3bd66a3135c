"""The view of the Redis storage, by scripts that the server keeps from writing."""

from collections.abc import Iterator, Sequence

import msgspec

from resequencer.record import Partition
from resequencer.storage_port import Header, StorageUnavailable
from storage.redis.header import RedisKeys, StoredHeader, read_header
from storage.redis.partition import snapshot_of, torn, waits_of
from storage.redis.scripts import VIEW_CHANGES, VIEW_HEADER, VIEW_SCAN, VIEW_UNIT, VIEW_WAITS
from storage.redis.servers import RedisServers
from storage.redis.settings import RedisSettings
from storage.view_port import (
    UnitView,
    WaitingChanges,
    WaitingPortion,
    count_commits_since,
    is_worth_it,
    marker_of,
    whole_of_nothing,
)

_FIELDS_AT_ONCE = 1_000
"""A portion holds the server for one or two milliseconds; between portions it serves its other clients, the owner among them."""

_ENTRIES_AT_ONCE = 16
_decode = msgspec.msgpack.Decoder(tuple[str, ...]).decode


class RedisStorageView:
    """A user who may only read is enough (docs/servers.md). It needs Redis 7.0, the storage itself does not.

    What changed since a marker is read by the log of changes. The whole is listed where the log does not reach back, and
    where that is less to read.
    """

    def __init__(self, settings: RedisSettings) -> None:
        self._namespace = settings.namespace
        self._servers = RedisServers(settings.place, settings.timeout_ms)

    def find_header(self, partition: Partition) -> Header | None:
        return self._read_header(RedisKeys(self._namespace, partition)).header

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
        keys = RedisKeys(self._namespace, partition)
        if _is_at(marker, self._read_header(keys).header):
            return None
        run_id = self._run_id(keys)
        # Once more, because what is read must not be older than the commit that the new marker names.
        stored = self._read_header(keys)
        if _is_at(marker, stored.header):
            return None
        if stored.header is None:
            return whole_of_nothing()
        units = self._find_changed_units(keys, stored, stored.header, marker)
        read = self._scan(keys) if units is None else self._read_waits(keys, units)
        return WaitingChanges(marker_of(stored.header), units is None, self._checked(keys, run_id, read))

    def close(self) -> None:
        self._servers.close()

    def _read_header(self, keys: RedisKeys) -> StoredHeader:
        return read_header(keys.header, self._servers.run(VIEW_HEADER, [keys.header], ()))

    def _find_changed_units(
        self, keys: RedisKeys, stored: StoredHeader, header: Header, marker: str | None
    ) -> Sequence[str] | None:
        """Return the units that changed since the marker, None if the whole is to be listed."""
        commits = count_commits_since(header, marker)
        is_kept = stored.log_marker == marker_of(header)
        if commits is None or not is_kept or commits > stored.log_end - stored.log_begin:
            return None
        units: dict[str, None] = {}
        for begin in range(stored.log_end - commits, stored.log_end, _ENTRIES_AT_ONCE):
            end = min(begin + _ENTRIES_AT_ONCE, stored.log_end)
            entries = self._servers.run(VIEW_CHANGES, [keys.changes], (begin, end - 1))
            # Entries that are missing were dropped meanwhile.
            if len(entries) < end - begin:
                return None
            units |= dict.fromkeys(unit for entry in entries if entry for unit in _decode(entry))
            if not is_worth_it(len(units), stored.waiting):
                return None
        return list(units)

    def _read_waits(self, keys: RedisKeys, units: Sequence[str]) -> Iterator[WaitingPortion]:
        for begin in range(0, len(units), _FIELDS_AT_ONCE):
            wanted = units[begin : begin + _FIELDS_AT_ONCE]
            found = self._servers.run(VIEW_WAITS, [keys.waiting], [unit.encode() for unit in wanted])
            yield [(unit, None if waits is None else waits_of(waits)) for unit, waits in zip(wanted, found, strict=True)]

    def _scan(self, keys: RedisKeys) -> Iterator[WaitingPortion]:
        cursor = b""
        while cursor != b"0":
            cursor, flat = self._servers.run(VIEW_SCAN, [keys.waiting], (cursor or b"0", _FIELDS_AT_ONCE))
            if flat:
                yield [(unit.decode(), waits_of(waits)) for unit, waits in zip(flat[::2], flat[1::2], strict=True)]

    def _checked(self, keys: RedisKeys, run_id: str, read: Iterator[WaitingPortion]) -> Iterator[WaitingPortion]:
        """Check that one server answered throughout. Another one, or the same one restarted, may have lost the last commits,
        and a cursor means nothing to it.
        """
        yield from read
        if self._run_id(keys) != run_id:
            raise StorageUnavailable(f"{keys.tag}: its server was restarted or replaced while the waiting units were read")

    def _run_id(self, keys: RedisKeys) -> str:
        return self._servers.facts(keys.header).get("run_id", "")


def _is_at(marker: str | None, header: Header | None) -> bool:
    """Whether nothing was committed since the marker."""
    return not marker if header is None else marker == marker_of(header)
