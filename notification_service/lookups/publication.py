"""The publication of a release, and the roll-back to an older one. Both are for the holder of `LookupsDirectory.publishing`.

A release is published in three steps: the manifest is written, the directory is renamed into place, and `current` is replaced. A
job that ends between two steps leaves the old release in use.
"""

import hashlib
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import lmdb

from notification_service.lookups.directory import MANIFEST, LookupsDirectory
from notification_service.lookups.manifest import FORMAT, Pointer, ReleaseManifest, Shard, Source, Table, encode_manifest
from notification_service.lookups.release import open_release, pointer_of
from notification_service.lookups.shapes import ReleaseRefused
from resequencer.clock import Instant, instant_text
from storage.private_file import sync_directory


class Publication:
    """A release under construction. Tables are written under `path`, each into a directory with its name."""

    def __init__(self, directory: LookupsDirectory, now: Instant, job_version: str) -> None:
        """The version is that of the instant `now`, or of a millisecond behind the newest release.

        A clock that was ahead made that one: what is built now replaces it, and the oldest release goes.
        """
        newest = max([_instant_of(each) for each in directory.versions()], default=-1)
        self.version = version_of(max(now, newest + 1))
        self.path = directory.building / self.version
        self._directory = directory
        self._now = now
        self._job_version = job_version

    def table_path(self, name: str) -> Path:
        """Return the table's directory; create it if it is missing."""
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def publish(self, tables: dict[str, Table], sources: tuple[Source, ...]) -> ReleaseManifest:
        """Publish the release and make it the one in use."""
        manifest = ReleaseManifest(FORMAT, self.version, instant_text(self._now), self._job_version, tables, sources)
        pointer = self._seal(manifest)
        self._directory.releases.mkdir(exist_ok=True)
        self.path.rename(self._directory.release(self.version))
        sync_directory(self._directory.releases)
        self._directory.switch(pointer)
        return manifest

    def _seal(self, manifest: ReleaseManifest) -> Pointer:
        content = encode_manifest(manifest)
        for name in manifest.tables:
            sync_directory(self.table_path(name))
        with (self.path / MANIFEST).open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        sync_directory(self.path)
        return Pointer(self.version, hashlib.sha256(content).hexdigest())


def roll_back(directory: LookupsDirectory, version: str) -> None:
    """Switch to an older release, or forward again, if it is complete.

    Raises:
        ReleaseRefused: There is no release of this version, or it is damaged; nothing has changed.
    """
    if version not in directory.versions():
        known = ", ".join(reversed(directory.versions())) or "none"
        raise ReleaseRefused(directory.release(version), f"there is no such release; the releases are: {known}")
    pointer = pointer_of(directory, version)
    open_release(directory, pointer).close()
    directory.switch(pointer)


def version_of(now: Instant) -> str:
    """Return the version of an instant: `20261121T192512123Z`. The order as text is the order in time."""
    moment = datetime.fromtimestamp(now // 1_000, UTC)
    return f"{moment:%Y%m%dT%H%M%S}{now % 1_000:03}Z"


def _instant_of(version: str) -> Instant:
    """Return the instant of a version; -1 if its digits are none, as of a directory that a person has made."""
    try:
        moment = datetime.strptime(version[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return -1
    return round(moment.timestamp()) * 1_000 + int(version[15:18])


_LARGEST_BYTES = 1 << 40
"""An upper bound for the file. It reserves only address space; the file grows with its content."""

Row = tuple[bytes, bytes]


def write_shard(file: Path, batches: Iterable[Sequence[Row]]) -> Shard:
    """Write a shard, and return its entry for the manifest. The file is then on disk. An existing file is replaced.

    Keys must ascend by their bytes over all batches, without repetitions, and have 1 to 511 bytes. A batch is one transaction.

    Raises:
        ValueError: The keys violate these rules.
    """
    file.unlink(missing_ok=True)
    rows = 0
    with lmdb.open(str(file), subdir=False, lock=False, map_size=_LARGEST_BYTES, meminit=False) as environment:
        for batch in batches:
            with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
                try:
                    consumed, _ = cursor.putmulti(batch, overwrite=False, append=True)
                except lmdb.Error as error:
                    raise ValueError(f"{file}: keys must ascend and have 1 to 511 bytes: {error}") from error
            if consumed != len(batch):
                raise ValueError(f"{file}: keys must ascend, and none may come twice")
            rows += len(batch)
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return Shard(file.name, rows, os.fstat(stream.fileno()).st_size, digest)
