"""The commit log of a partition: what was committed since the database took its commits over. A file beside the database.

A commit is a record at the end of this file, written in place and synced before it is answered. The first record names the owner.
A new owner appends a record that names it before it reads, so that the one before can append nothing any more.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from glob import escape
from pathlib import Path
from stat import S_IMODE
from struct import Struct
from time import monotonic, sleep
from typing import NamedTuple
from zlib import crc32

import msgspec

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Commit, StorageUnavailable
from storage.embedded.errors import translated
from storage.private_file import sync_directory

_FRAME = Struct("<4sII")
_MARK = b"\xf7rsq"
_PAUSE_SECONDS = 0.005


class Logged(NamedTuple):
    """A commit under this token. None: from here on the partition belongs to the token."""

    token: str
    commit: Commit | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Logged).decode


def framed(token: str, commit: Commit | None = None) -> bytes:
    """Return the record: mark, length, CRC-32, and the entry as MessagePack."""
    body = _encode((token, commit))
    return _FRAME.pack(_MARK, len(body), crc32(body)) + body


def logs_of(file: Path) -> list[Path]:
    """Return the logs beside this database."""
    return sorted(file.parent.glob(f"{escape(file.name)}-log-*"))


def log_of(file: Path, key: int) -> Path:
    """Return the path of the log of the partition with this id in the database."""
    return file.with_name(f"{file.name}-log-{key}")


class Contents(NamedTuple):
    """What a log has: its entries, as far as they are whole, up to the byte `end` of its data."""

    entries: Sequence[Logged]
    end: int
    data: bytes

    def find_behind(self, tokens: Iterable[str]) -> Iterator[Logged]:
        """Yield the whole records of these owners that lie behind a place at which there is none.

        A record of a customer may look like one of ours, but it does not have their tokens.
        """
        for token in tokens:
            beginning, at = b"\x92" + _encode(token), self.end
            while (at := self.data.find(beginning, at + 1)) != -1:
                found = _entry_at(self.data, at - _FRAME.size)
                if found is not None:
                    yield found[0]


def read_log(log: Path) -> Contents:
    """Return the contents; none without a file. Its owner may be writing.

    Raises:
        StorageUnavailable, StorageRefused: The file cannot be read.
    """
    with translated(log):
        try:
            return _contents(log.read_bytes())
        except FileNotFoundError:
            return Contents((), 0, b"")


class CommitLog:
    """The log of the partition with the id `key`, for one owner, used from one thread.

    All but `locked`, `see_owner` and `close` are called while it is `locked`. An owner reads it, announces itself, and begins it
    again once the database has what was read; then it appends. `end` is where the next record is written.
    """

    def __init__(self, database: Path, key: int, busy_timeout_ms: int) -> None:
        self.file = log_of(database, key)
        self.end = 0
        self._database = database
        self._busy_seconds = busy_timeout_ms / 1_000
        self._descriptor: int | None = None
        self._owner = b""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from the log and from what its partition has in the database.

        Raises:
            StorageUnavailable: Another process has it locked for longer than the busy timeout.
        """
        with translated(self.file):
            descriptor = self._lock()
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def read(self) -> Contents:
        """Return the contents. What is not whole at the end was never answered."""
        found = _contents(self._read(0))
        self.end = found.end
        return found

    def announce(self, token: str) -> None:
        """Append that the partition will belong to this token. The owner before can append nothing behind it."""
        record = framed(token)
        self._write(record)
        self.end += len(record)

    def begin(self, token: str) -> None:
        """Begin again under this token: the database has all commits."""
        assert self._descriptor is not None
        self._owner, self.end = framed(token), 0
        os.ftruncate(self._descriptor, 0)
        self._write(self._owner)
        self.end = len(self._owner)
        # Each time: who made the file may have died before its name was durable.
        sync_directory(self.file.parent)

    def append(self, record: bytes) -> None:
        """Write a record and sync it. After a failure the same record goes to the same place.

        Raises:
            OwnershipLost: Another owner wrote to the log.
            StorageUnavailable: The disk failed; the record may be stored.
        """
        self.check_owner(record)
        self._write(record)
        self.end += len(record)

    def check_owner(self, record: bytes = b"") -> None:
        """Check that nothing follows what this owner has written, but this record alone if it was written without an answer.

        Raises:
            OwnershipLost: Another owner wrote to the log.
        """
        assert self._descriptor is not None
        size = os.fstat(self._descriptor).st_size
        is_ours = size >= self.end and os.pread(self._descriptor, len(self._owner), 0) == self._owner
        if is_ours and size > self.end:
            behind = self._read(self.end)
            found = _entry_at(behind, 0)
            is_ours = found is None or (behind[: found[1]] == record and _entry_at(behind, found[1]) is None)
        if not is_ours:
            raise OwnershipLost(f"{self.file}: another owner has written to it")

    def see_owner(self) -> None:
        """As `check_owner`, without the lock."""
        with translated(self.file):
            self._opened()
            self.check_owner()

    def forget_all(self) -> None:
        """Remove all records but the owner's: the database has these commits."""
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, len(self._owner))
        self.end = len(self._owner)

    def remove(self) -> None:
        """Remove the file: the database has all commits."""
        self.file.unlink()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _lock(self) -> int:
        give_up_at = monotonic() + self._busy_seconds
        while True:
            descriptor = self._opened()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if monotonic() > give_up_at:
                    raise StorageUnavailable(f"{self.file}: another process has it locked") from None
                sleep(_PAUSE_SECONDS)
                continue
            if self._is_in_its_place(descriptor):
                return descriptor
            self.close()  # Its last owner has removed it, or it was moved.

    def _opened(self) -> int:
        """Open the file. Only who takes the partition over makes it, with the mode of the database."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self.file, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                if self._owner:
                    raise OwnershipLost(f"{self.file}: another owner has removed it") from None
                self._descriptor = os.open(self.file, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
                os.fchmod(self._descriptor, S_IMODE(self._database.stat().st_mode))
        return self._descriptor

    def _is_in_its_place(self, descriptor: int) -> bool:
        try:
            there = self.file.stat()
        except FileNotFoundError:
            return False
        ours = os.fstat(descriptor)
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def _read(self, offset: int) -> bytes:
        assert self._descriptor is not None
        chunks, size = list[bytes](), os.fstat(self._descriptor).st_size
        while offset < size and (chunk := os.pread(self._descriptor, size - offset, offset)):
            chunks.append(chunk)
            offset += len(chunk)
        return b"".join(chunks)

    def _write(self, record: bytes) -> None:
        """Write at the end, cut off what lay there before, and sync."""
        assert self._descriptor is not None
        written = 0
        while written < len(record):
            written += os.pwrite(self._descriptor, record[written:] if written else record, self.end + written)
        if os.fstat(self._descriptor).st_size > self.end + len(record):
            os.ftruncate(self._descriptor, self.end + len(record))
        os.fdatasync(self._descriptor)


def _entry_at(data: bytes, at: int) -> tuple[Logged, int] | None:
    """Return the entry of the record at this byte, and where the record ends; None if no whole record is there.

    Raises:
        DecodeError: A whole record does not have the form of ours.
    """
    begin = at + _FRAME.size
    if at < 0 or len(data) < begin:
        return None
    mark, length, checksum = _FRAME.unpack_from(data, at)
    body = data[begin : begin + length]
    if mark != _MARK or len(body) != length or crc32(body) != checksum:
        return None
    return _decode(body), begin + length


def _contents(data: bytes) -> Contents:
    entries, at = list[Logged](), 0
    while (found := _entry_at(data, at)) is not None:
        entries.append(found[0])
        at = found[1]
    return Contents(entries, at, data)
