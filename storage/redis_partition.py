"""One partition in Redis, as its owner sees it."""

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from domain.clock import Instant
from domain.errors import OwnershipLost
from storage.ownership import LastCommit, advanced, check_owner, is_done
from storage.port import (
    Commit,
    Header,
    Pending,
    Snapshot,
    StashEntry,
    StorageRefused,
    UnitChange,
    WaitKind,
    Waits,
)
from storage.redis_header import name, restore
from storage.redis_keys import RedisKeys
from storage.redis_scripts import COMMIT, FULFILLED, HEAR, LOAD, SCAN, Script, Verdict
from storage.redis_servers import RedisServers
from storage.redis_settings import GRACE_MS, Span

_UNITS_AT_ONCE = 500
_BYTES_AT_ONCE = 8_000_000
_MOST_BYTES = 512_000_000
"""Of a commit. By default a server takes values of 512 MiB and commands of 1 GiB, and hangs up on more."""

_FIELDS_AT_ONCE = 2_000

_StoredWaits = tuple[Instant, WaitKind, Instant, str, str, int, int]
_encode = msgspec.json.Encoder().encode
_decode_waits = msgspec.json.Decoder(_StoredWaits).decode


class RedisPartitionStore:
    """A partition's units under the token that was taken. A unit is one hash: state, payment data and the stashed records."""

    def __init__(
        self, servers: RedisServers, keys: RedisKeys, header: Header, heard_at: Instant, span: Span, replicas: int
    ) -> None:
        self._servers = servers
        self._keys = keys
        self._header = header
        self._heard_at = heard_at
        self._span = span
        self._replicas = replicas

    @property
    def header(self) -> Header:
        return self._header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        """One read for as many as 8 MB hold; of more each read checks the ownership again, so that nothing changed between."""
        wanted = list(units)
        if not wanted:
            self.hear()
        found: dict[str, Snapshot] = {}
        while wanted:
            asked = wanted[:_UNITS_AT_ONCE]
            fields = self._load(asked)
            found |= {unit: _snapshot(unit, flat) for unit, flat in zip(asked, fields, strict=False) if flat}
            del wanted[: len(fields)]
        return found

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        fields = self._scan(self._keys.waiting)
        waits = [(unit.decode(), Waits(*_decode_waits(stored))) for unit, stored in fields.items()]
        return sorted(waits, key=lambda each: each[1].wakes_at)

    def pending(self) -> Sequence[Pending]:
        fields = self._scan(self._keys.pending)
        return [Pending(number, body) for number, body in sorted((int(field), body) for field, body in fields.items())]

    def commit(self, commit: Commit) -> None:
        arguments = self._commit_arguments(commit)
        if (size := sum(len(each) for each in arguments if isinstance(each, bytes))) > _MOST_BYTES:
            problem = f"a commit of {size:,} bytes is more than a server takes at once; lower ingress.batch-size"
            raise StorageRefused(self._keys.tag, problem)
        keys = [self._keys.header, self._keys.waiting, self._keys.pending]
        keys += self._keys.units(change.unit for change in commit.changes)
        answer = self._servers.run(COMMIT, keys, arguments, self._replicas)
        if answer[0] == Verdict.LOST.encode():
            is_done(_last_commit(answer), self._header, commit)
        self._note(answer)
        self._header = advanced(self._header, commit)

    def expire(self, until: int, spared: Container[str]) -> int:  # noqa: ARG002
        self.hear()
        return 0

    def hear(self) -> None:
        """See that the partition is still ours and how late it is at the server. To be called now and then: see `Span`.

        Raises: as `load`.
        """
        self._run(HEAR, [self._keys.header])

    def _load(self, units: Sequence[str]) -> Sequence[Sequence[bytes]]:
        keys = [self._keys.header, self._keys.waiting, *self._keys.units(units)]
        fields: Sequence[Sequence[bytes]] = self._run(LOAD, keys, GRACE_MS, len(self._keys.unit_prefix), _BYTES_AT_ONCE)[2]
        return fields

    def _scan(self, key: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        cursor = b"0"
        while True:
            _, _, cursor, flat = self._run(SCAN, [self._keys.header, key], cursor, _FIELDS_AT_ONCE)
            found |= zip(flat[::2], flat[1::2], strict=True)
            if cursor == b"0":
                return found

    def _run(self, script: Script, keys: Sequence[bytes], *arguments: bytes | int) -> Any:
        answer = self._servers.run(script, keys, (*self._owner(self._header.commit), *arguments))
        if answer[0] == Verdict.LOST.encode():
            check_owner(_last_commit(answer), self._header)
        self._note(answer)
        return answer

    def _note(self, answer: Sequence[Any]) -> None:
        verdict, now = answer[:2]
        if verdict == Verdict.SILENT.encode():
            silence = f"{self._keys.tag}: nothing was heard of the server for {(now - self._heard_at) / 1_000:.0f} s"
            raise OwnershipLost(f"{silence}; idle units may have expired meanwhile")
        if verdict == Verdict.TORN.encode():
            raise StorageRefused(name(answer[2]), f"something waits in it, but it is not there; {restore(answer[2])}")
        assert verdict in FULFILLED, f"{verdict!r} was to be raised"
        self._heard_at = now

    def _owner(self, commit: int) -> tuple[str | int, ...]:
        return self._header.token, commit, self._heard_at, self._span.silence_ms

    def _commit_arguments(self, commit: Commit) -> list[bytes | str | int]:
        arguments: list[bytes | str | int] = [*self._owner(commit.number - 1), commit.number, commit.attempt]
        arguments += (commit.next_offset, commit.highest_number, commit.heal_offset, commit.source, commit.published)
        arguments += (self._span.retention_ms + GRACE_MS, len(self._keys.unit_prefix), 2 * len(commit.added))
        for pending in commit.added:
            arguments += (pending.number, pending.body)
        for change in commit.changes:
            arguments += _change_arguments(change)
        return arguments


def _change_arguments(change: UnitChange) -> Iterator[bytes | str | int]:
    fields: list[bytes | int] = [b"state", change.state]
    if change.payment_data is not None:
        fields += (b"data", change.payment_data)
    for entry in change.stash_added:
        fields += (entry.offset, entry.body)
    yield 0
    yield b"" if change.waits is None else _encode(msgspec.structs.astuple(change.waits))
    yield len(change.stash_removed)
    yield len(fields)
    yield from change.stash_removed
    yield from fields


def _snapshot(unit: str, flat: Sequence[bytes]) -> Snapshot:
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    state, payment_data = fields.pop(b"state"), fields.pop(b"data", None)
    stash = sorted((int(offset), body) for offset, body in fields.items())
    return Snapshot(unit, state, payment_data, tuple(StashEntry(*entry) for entry in stash))


def _last_commit(answer: Sequence[Any]) -> LastCommit:
    token, number, attempt = ((each or b"").decode() for each in answer[2:5])
    return LastCommit(token, int(number or 0), attempt or None)
