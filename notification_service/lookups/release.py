"""An open release that was verified: its manifest and its tables."""

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from heapq import merge
from io import BufferedReader
from pathlib import Path
from threading import Lock
from zlib import crc32

import lmdb

from notification_service.lookups.directory import MANIFEST, LookupsDirectory
from notification_service.lookups.manifest import Pointer, ReleaseManifest, decode_manifest
from notification_service.lookups.shapes import LONGEST_KEY_BYTES, ReleaseRefused


class LookupTable:
    """Finds values by key, in any thread, but only one at a time. A large table opens as fast as a small one.

    Do not use it after `close`, nor before its files were verified, because LMDB does not check what it maps.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        """Open the files, at least one. Raises ReleaseRefused if one of them cannot be opened."""
        self._readings: list[lmdb.Transaction] = []
        self._gets: list[Callable[[bytes], bytes | None]] = []
        self._files: list[Path] = []
        try:
            for file in files:
                environment = _opened.open(file)
                self._files.append(file)
                reading = environment.begin()
                self._readings.append(reading)
                self._gets.append(reading.get)
        except lmdb.Error as error:
            self.close()
            raise ReleaseRefused(file, f"cannot be opened: {error}") from error
        self._count = len(files)
        self._only = self._gets[0] if self._count == 1 else None

    def find(self, key: bytes) -> bytes | None:
        if not 0 < len(key) <= LONGEST_KEY_BYTES:
            return None
        if self._only is not None:
            return self._only(key)
        return self._gets[crc32(key) % self._count](key)

    def rows(self, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys behind this one and their values, in the order of the keys."""
        return merge(*(_rows_of(each, after) for each in self._readings))

    def close(self) -> None:
        self._gets.clear()
        self._only = None
        for reading in self._readings:
            reading.abort()
        for file in self._files:
            _opened.close(file)
        self._readings.clear()
        self._files.clear()


def _rows_of(reading: lmdb.Transaction, after: bytes) -> Iterator[tuple[bytes, bytes]]:
    with reading.cursor() as cursor:
        # No key is empty, and the next possible key is the same with a zero byte.
        if cursor.set_range(after + b"\x00"):
            yield from ((bytes(key), bytes(value)) for key, value in cursor)


class _Opened:
    """The open files of this process. LMDB must not open a file twice, but a release in use may become current once more."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._environments: dict[Path, lmdb.Environment] = {}
        self._users: Counter[Path] = Counter()

    def open(self, file: Path) -> lmdb.Environment:
        """Open a file or share it. It is never written, so it needs no locks. Reads are random, so read-ahead is off."""
        with self._lock:
            if file not in self._environments:
                self._environments[file] = lmdb.open(
                    str(file), subdir=False, readonly=True, create=False, lock=False, readahead=False
                )
            self._users[file] += 1
            return self._environments[file]

    def close(self, file: Path) -> None:
        """Close a file. Call it once for each `open`."""
        with self._lock:
            self._users[file] -= 1
            if not self._users[file]:
                del self._users[file]
                self._environments.pop(file).close()


_opened = _Opened()


_REMEDY = "build the lookups again, or roll back"


class Release:
    """An open release. It is not removed before it is closed. Its answers do not change when another release is published."""

    def __init__(self, manifest: ReleaseManifest, tables: dict[str, LookupTable], held: ExitStack) -> None:
        self.manifest = manifest
        self.version = manifest.version
        self._tables = tables
        self._held = held

    def find(self, table: str, key: bytes) -> bytes | None:
        """Return the value, None if there is no such key or no such table."""
        found = self._tables.get(table)
        return None if found is None else found.find(key)

    def rows(self, table: str, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys of a table behind this one and their values, in the order of the keys; none without such a table."""
        found = self._tables.get(table)
        return iter(()) if found is None else found.rows(after)

    def has(self, table: str) -> bool:
        return table in self._tables

    def close(self) -> None:
        self._held.close()


def open_release(directory: LookupsDirectory, pointer: Pointer) -> Release:
    """Read the manifest, verify every file, and map the tables. Reads all files once: about a second per gigabyte.

    Raises:
        ReleaseRefused: A file is missing or damaged, or the release is of another format or being removed.
    """
    place = directory.release(pointer.version)
    with ExitStack() as opening:
        manifest = _hold_manifest(place / MANIFEST, pointer, opening)
        tables = {}
        for name, table in manifest.tables.items():
            files = [place / name / shard.file for shard in table.shards]
            for file, shard in zip(files, table.shards, strict=True):
                _check_file(file, shard.bytes, shard.sha256)
            tables[name] = LookupTable(files)
            opening.callback(tables[name].close)
        return Release(manifest, tables, opening.pop_all())


def pointer_of(directory: LookupsDirectory, version: str) -> Pointer:
    """Return a pointer to an existing release, which may be another one than the release in use.

    Raises:
        ReleaseRefused: Its manifest does not exist or cannot be read.
    """
    file = directory.release(version) / MANIFEST
    try:
        return Pointer(version, hashlib.sha256(file.read_bytes()).hexdigest())
    except OSError as error:
        raise ReleaseRefused(file, f"cannot be read: {error.strerror or error}") from error


def read_manifest(directory: LookupsDirectory, version: str) -> ReleaseManifest:
    """Return the manifest of a release, to show it. Verifies no file.

    Raises:
        ReleaseRefused: The manifest does not exist or cannot be read.
    """
    file = directory.release(version) / MANIFEST
    try:
        return decode_manifest(file.read_bytes(), file)
    except OSError as error:
        raise ReleaseRefused(file, f"cannot be read: {error.strerror or error}") from error


def _hold_manifest(file: Path, pointer: Pointer, opening: ExitStack) -> ReleaseManifest:
    try:
        stream = opening.enter_context(file.open("rb"))
        fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        content = stream.read()
        is_gone = os.fstat(stream.fileno()).st_ino != file.stat().st_ino
    except BlockingIOError as error:
        raise ReleaseRefused(file, "is being removed; another release has taken its place") from error
    except OSError as error:
        raise ReleaseRefused(file, f"cannot be read: {error.strerror or error}; {_REMEDY}") from error
    if is_gone:
        raise ReleaseRefused(file, "is being removed; another release has taken its place")
    if hashlib.sha256(content).hexdigest() != pointer.manifest_sha256:
        raise ReleaseRefused(file, f"is not the manifest that was published; {_REMEDY}")
    manifest = decode_manifest(content, file)
    if manifest.version != pointer.version:
        raise ReleaseRefused(file, f"is that of {manifest.version}; {_REMEDY}")
    return manifest


def _check_file(file: Path, size: int, sha256: str) -> None:
    try:
        with file.open("rb") as stream:
            found = os.fstat(stream.fileno()).st_size
            if found != size:
                raise ReleaseRefused(file, f"has {found} bytes instead of {size}; {_REMEDY}")
            if _digest(stream) != sha256:
                raise ReleaseRefused(file, f"is damaged: its checksum is not that of the manifest; {_REMEDY}")
    except OSError as error:
        raise ReleaseRefused(file, f"cannot be read: {error.strerror or error}; {_REMEDY}") from error


def _digest(stream: BufferedReader) -> str:
    return hashlib.file_digest(stream, "sha256").hexdigest()
