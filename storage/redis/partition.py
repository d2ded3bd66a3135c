"""One partition in Redis, for its owner."""

import logging
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from resequencer.clock import Instant
from resequencer.storage_port import Commit, Header, Pending, Snapshot, StashEntry, StorageRefused, UnitChange, WaitKind, Waits
from storage.fencing import LastCommit, advanced, check_owner, is_done
from storage.redis.header import RedisKeys, name, restore
from storage.redis.scripts import COMMIT, DUE, FORGET, FULFILLED, INDEX, LOAD, SCAN, Script, Verdict
from storage.redis.servers import RedisServers
from storage.view_port import marker_of

_log = logging.getLogger("resequencer.storage")

_UNITS_AT_ONCE = 500
_BYTES_AT_ONCE = 8_000_000
_MAX_BYTES = 512_000_000
"""The largest commit. By default a server accepts values of 512 MiB and commands of 1 GiB, and closes the connection on more."""

_FIELDS_AT_ONCE = 2_000
_EXPIRED_PER_CALL = 1_000
_INDEXED_AT_ONCE = 2_000

_StoredWaits = tuple[Instant, WaitKind, Instant, str, str, int, int]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_StoredWaits).decode


class RedisPartitionStore:
    """A partition's units under the owner's token. A unit is one hash: state, data and the stashed records."""

    def __init__(self, servers: RedisServers, keys: RedisKeys, header: Header, replicas: int) -> None:
        self._servers = servers
        self._keys = keys
        self._header = header
        self._replicas = replicas

    @property
    def header(self) -> Header:
        return self._header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        """Load units with one read for each 8 MB. Each read checks the ownership, so nothing changes between the reads."""
        wanted = list(units)
        found: dict[str, Snapshot] = {}
        while True:
            asked = wanted[:_UNITS_AT_ONCE]
            fields = self._load(asked)
            found |= {unit: snapshot_of(unit, flat) for unit, flat in zip(asked, fields, strict=False) if flat}
            del wanted[: len(fields)]
            if not wanted:
                return found

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        fields = self._scan(self._keys.waiting)
        waits = [(unit.decode(), waits_of(stored)) for unit, stored in fields.items()]
        return sorted(waits, key=lambda each: each[1].wakes_at)

    def has_units(self) -> bool:
        return bool(self._run(DUE, [self._keys.header, self._keys.idle], b"+inf", 0, 1)[1] or self._scan(self._keys.waiting))

    def pending(self) -> Sequence[Pending]:
        fields = self._scan(self._keys.pending)
        return [Pending(number, body) for number, body in sorted((int(field), body) for field, body in fields.items())]

    def commit(self, commit: Commit) -> None:
        arguments = self._commit_arguments(commit)
        if (size := sum(len(each) for each in arguments if isinstance(each, bytes))) > _MAX_BYTES:
            problem = f"a commit of {size:,} bytes is larger than a server accepts; lower ingress.batch-size"
            raise StorageRefused(self._keys.tag, problem)
        keys = [self._keys.header, self._keys.waiting, self._keys.pending, self._keys.idle, self._keys.changes]
        keys += self._keys.units(change.unit for change in commit.changes)
        answer = self._servers.run(COMMIT, keys, arguments, self._replicas)
        if answer[0] == Verdict.LOST.encode():
            is_done(_last_commit(answer), self._header, commit)
        assert answer[0] in FULFILLED, f"{answer[0]!r} was to be raised"
        self._header = advanced(self._header, commit)

    def expire(self, until: int, spared: Container[str]) -> int:
        """Remove expired units as the port requires; return how many left the index of idle units."""
        free = (unit for unit in self._due(until) if unit.decode(errors="replace") not in spared)
        units = [self._keys.unit_prefix + unit for unit in islice(free, _EXPIRED_PER_CALL)]
        if not units:
            return 0
        keys = [self._keys.header, self._keys.waiting, self._keys.idle, *units]
        gone: int = self._run(FORGET, keys, until, len(self._keys.unit_prefix))[1]
        return gone

    def index_idle_units(self) -> int:
        """Add all idle units to the index. Return how many were added.

        The cost depends on the number of all keys of the server.

        Raises: as `load`.
        """
        keys = [self._keys.header, self._keys.waiting, self._keys.idle, self._keys.unit_prefix]
        found, joined = self._servers.scan(self._keys.unit_prefix), 0
        while True:
            units = list(islice(found, _INDEXED_AT_ONCE))
            is_last = len(units) < _INDEXED_AT_ONCE
            arguments = (self._header.caught_up_ms, len(self._keys.unit_prefix), int(is_last))
            joined += int(self._run(INDEX, [*keys, *units], *arguments)[1])
            if is_last:
                return joined

    def _due(self, until: int) -> Iterator[bytes]:
        """Yield the idle units that last changed at `until` or before."""
        passed = 0
        while True:
            units = self._run(DUE, [self._keys.header, self._keys.idle], until, passed, _EXPIRED_PER_CALL)[1]
            yield from units
            passed += len(units)
            if len(units) < _EXPIRED_PER_CALL:
                return

    def _load(self, units: Sequence[str]) -> Sequence[Sequence[bytes]]:
        keys = [self._keys.header, self._keys.waiting, self._keys.idle, *self._keys.units(units)]
        verdict, found, *missed = self._run(LOAD, keys, len(self._keys.unit_prefix), _BYTES_AT_ONCE)
        if verdict == Verdict.TORN.encode():
            raise torn(found)
        self._tell_of_missed(*missed)
        fields: Sequence[Sequence[bytes]] = found
        return fields

    def _tell_of_missed(self, keys: Sequence[bytes]) -> None:
        if keys:
            text = (
                "%s: keys of idle units are missing (%d, for example %s): they were deleted by hand or evicted; "
                "these units start empty, and their notifications may be sent again without a mark"
            )
            _log.error(text, self._keys.tag, len(keys), name(keys[0]))

    def _scan(self, key: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        cursor = b"0"
        while True:
            _, cursor, flat = self._run(SCAN, [self._keys.header, key], cursor, _FIELDS_AT_ONCE)
            found |= zip(flat[::2], flat[1::2], strict=True)
            if cursor == b"0":
                return found

    def _run(self, script: Script, keys: Sequence[bytes], *arguments: bytes | int) -> Any:
        answer = self._servers.run(script, keys, (self._header.token, self._header.commit, *arguments))
        if answer[0] == Verdict.LOST.encode():
            check_owner(_last_commit(answer), self._header)
        assert answer[0] != Verdict.LOST.encode(), "it was to be raised"
        return answer

    def _commit_arguments(self, commit: Commit) -> list[bytes | str | int]:
        arguments: list[bytes | str | int] = [self._header.token, commit.number - 1, commit.number, commit.attempt]
        arguments += (commit.next_offset, commit.highest_number, commit.heal_offset, commit.source)
        arguments += (commit.caught_up_ms, commit.published, len(self._keys.unit_prefix))
        arguments += (marker_of(advanced(self._header, commit)), commit.orders, commit.source_state, 2 * len(commit.added))
        for pending in commit.added:
            arguments += (pending.number, pending.body)
        for change in commit.changes:
            arguments += _change_arguments(change)
        return arguments


def _change_arguments(change: UnitChange) -> Iterator[bytes | str | int]:
    fields: list[bytes | int] = [b"state", change.state]
    if change.data is not None:
        fields += (b"data", change.data)
    for entry in change.stash_added:
        fields += (entry.offset, entry.body)
    yield b"" if change.waits is None else _encode(msgspec.structs.astuple(change.waits))
    yield len(change.stash_removed)
    yield len(fields)
    yield from change.stash_removed
    yield from fields


def waits_of(stored: bytes) -> Waits:
    """Return the waits of an entry of the index of waiting units."""
    return Waits(*_decode(stored))


def torn(key: bytes) -> StorageRefused:
    """Return the error for a unit that waits by the index, but whose key is missing."""
    return StorageRefused(name(key), f"the unit has waiting envelopes, but its key is missing; {restore(key)}")


def snapshot_of(unit: str, flat: Sequence[bytes]) -> Snapshot:
    """Return a unit by the fields and values of its hash."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    state, data = fields.pop(b"state"), fields.pop(b"data", None)
    stash = sorted((int(offset), body) for offset, body in fields.items())
    return Snapshot(unit, state, data, tuple(StashEntry(*entry) for entry in stash))


def _last_commit(answer: Sequence[Any]) -> LastCommit:
    token, number, attempt = ((each or b"").decode() for each in answer[1:4])
    return LastCommit(token, int(number or 0), attempt or None)
