"""Storage `whole-file`: everything in one file that is written again at each commit. For a handful of units."""

import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from resequencer.record import Partition
from resequencer.storage_port import (
    Answer,
    Commit,
    Header,
    Pending,
    Snapshot,
    StashEntry,
    StorageRefused,
    StorageUnavailable,
    UnitChange,
    Waits,
)
from storage.fencing import LastCommit, advanced, check_owner, is_done, succeeded

FORMAT = 1
EXPIRED_PER_CALL = 1_000


class _Unit(msgspec.Struct):
    state: bytes
    changed_at: int  # On the partition's caught-up clock.
    waits: Waits | None
    data: bytes | None = None
    stash: dict[int, bytes] = {}


class _Partition(msgspec.Struct):
    header: Header
    attempt: str | None = None
    units: dict[str, _Unit] = {}
    pending: dict[int, bytes] = {}

    @property
    def last_commit(self) -> LastCommit:
        return LastCommit(self.header.token, self.header.commit, self.attempt)


class _Content(msgspec.Struct):
    format: int = FORMAT
    partitions: dict[Partition, _Partition] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Content).decode


class WholeFile:
    """Read whole, replaced whole. One process at a time may write: the run directory's lock sees to that."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> _Content:
        with _translated(self._path):
            content = _decode(self._path.read_bytes()) if self._path.exists() else _Content()
        if content.format > FORMAT:
            raise StorageRefused(str(self._path), f"has format {content.format}; start the newer version that wrote it")
        return content

    @contextmanager
    def changing(self) -> Iterator[_Content]:
        """What is changed within becomes durable at its end; nothing of it if anything is raised."""
        content = self.read()
        yield content
        data, draft = _encode(content), self._path.with_suffix(".new")
        with _translated(self._path):
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self._path)
            directory = os.open(self._path.parent, os.O_RDONLY)
            os.fsync(directory)  # Without it a power cut may bring the file of before back.
            os.close(directory)


class WholeFilePartitionStore:
    def __init__(self, file: WholeFile, partition: Partition, header: Header) -> None:
        self._file = file
        self._partition = partition
        self._header = header

    @property
    def header(self) -> Header:
        return self._header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        kept = self._checked().units
        return {unit: _snapshot(unit, kept[unit]) for unit in units if unit in kept}

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        return [(name, unit.waits) for name, unit in self._checked().units.items() if unit.waits is not None]

    def has_units(self) -> bool:
        return bool(self._checked().units)

    def pending(self) -> Sequence[Pending]:
        return [Pending(number, body) for number, body in sorted(self._checked().pending.items())]

    def commit(self, commit: Commit) -> None:
        with self._file.changing() as content:
            kept = content.partitions[self._partition]
            if not is_done(kept.last_commit, self._header, commit):
                _apply(kept, commit)
        self._header = advanced(self._header, commit)

    def expire(self, until: int, spared: Container[str]) -> int:
        with self._file.changing() as content:
            kept = content.partitions[self._partition]
            check_owner(kept.last_commit, self._header)
            idle = (name for name, unit in kept.units.items() if unit.waits is None and unit.changed_at <= until)
            gone = [name for name in idle if name not in spared][:EXPIRED_PER_CALL]
            for name in gone:
                del kept.units[name]
        return len(gone)

    def _checked(self) -> _Partition:
        kept = self._file.read().partitions[self._partition]
        check_owner(kept.last_commit, self._header)
        return kept


class WholeFileStorage:
    def __init__(self, path: Path, random_token: Callable[[], str]) -> None:
        self._file = WholeFile(path)
        self._random_token = random_token

    @property
    def is_durable(self) -> bool:
        return True

    def connect(self) -> None:
        self._file.read()

    def open(self, partition: Partition) -> WholeFilePartitionStore:
        with self._file.changing() as content:
            known = content.partitions.get(partition)
            header = succeeded(known.header if known else None, self._random_token())
            kept = content.partitions.setdefault(partition, _Partition(header))
            kept.header, kept.attempt = header, None
        return WholeFilePartitionStore(self._file, partition, header)

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Make none of them yet: one file takes one after the other."""
        return calls

    def give_up(self, partition: Partition) -> None:
        """Nothing of it is in memory."""

    def close(self) -> None:
        """Nothing is held open."""


def _apply(kept: _Partition, commit: Commit) -> None:
    for change in commit.changes:
        kept.units[change.unit] = _changed(kept.units.get(change.unit), change, commit.caught_up_ms)
    kept.pending |= {each.number: each.body for each in commit.added}
    kept.pending = {number: body for number, body in kept.pending.items() if number > commit.published}
    kept.header, kept.attempt = advanced(kept.header, commit), commit.attempt


def _changed(known: _Unit | None, change: UnitChange, changed_at: int) -> _Unit:
    stash = {offset: body for offset, body in (known.stash if known else {}).items() if offset not in change.stash_removed}
    stash |= {entry.offset: entry.body for entry in change.stash_added}
    data = change.data if change.data is not None or known is None else known.data
    return _Unit(change.state, changed_at, change.waits, data, stash)


def _snapshot(unit: str, kept: _Unit) -> Snapshot:
    return Snapshot(unit, kept.state, kept.data, tuple(StashEntry(*entry) for entry in sorted(kept.stash.items())))


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """The one place where this storage's errors become those of the port."""
    try:
        yield
    except msgspec.DecodeError as error:
        raise StorageRefused(str(path), f"is damaged ({error}); restore it from a copy") from error
    except OSError as error:
        raise StorageUnavailable(f"{path}: {error}") from error
