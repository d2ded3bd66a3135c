"""The directory of releases: `current` points to the release in use, and each release is `releases/<version>/`.

A switch renames one small file. A build is under `building/` and becomes a release by a rename, so each release is complete.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from notification_service.lookups.manifest import Pointer, decode_pointer, is_version
from notification_service.lookups.shapes import NoRelease, PublishingRefused
from storage.private_file import sync_directory

MANIFEST = "manifest.json"
_CURRENT = "current"
_GONE = "removing-"


class LookupsDirectory:
    """The directory of a service's lookups, on a file system that all its workers and its job share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.releases = path / "releases"
        self.building = path / "building"
        self.quarantine = path / "quarantine"

    def get_current(self) -> Pointer:
        """Return the pointer to the release in use.

        Raises NoRelease if nothing was published, ReleaseRefused if the pointer is damaged, OSError if it cannot be read.
        """
        file = self.path / _CURRENT
        try:
            return decode_pointer(file.read_bytes(), file)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoRelease(self.path) from error

    def release(self, version: str) -> Path:
        return self.releases / version

    def versions(self) -> list[str]:
        """Return the existing versions, the oldest first."""
        if not self.releases.is_dir():
            return []
        return sorted(each.name for each in self.releases.iterdir() if is_version(each.name))

    def switch(self, pointer: Pointer) -> None:
        """Make this the release in use. Only for the holder of `publishing`."""
        draft = self.path / f"{_CURRENT}.new"
        with draft.open("wb") as stream:
            stream.write(msgspec.json.encode(pointer) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.rename(self.path / _CURRENT)
        sync_directory(self.path)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Hold the lock for building, switching and removing. The kernel releases it when the process ends.

        Raises:
            PublishingRefused: Another process has the lock, or the directory cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            stream = (self.path / "publishing.lock").open("ab")
        except OSError as error:
            raise PublishingRefused(self.path, f"cannot be written: {error.strerror or error}") from error
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise PublishingRefused(
                    self.path, "lookups are being published or rolled back there; wait for that to end"
                ) from error
            yield

    def sweep(self, keep: int) -> list[str]:
        """Remove old releases, and return their versions. The newest `keep`, the current one and those in use stay.

        Also removes leftovers of dead jobs, and quarantined rows that are older than the oldest remaining release. Only for the
        holder of `publishing`.
        """
        for path in (*self.releases.glob(f"{_GONE}*"), *self.building.glob("*")):
            shutil.rmtree(path, ignore_errors=True)
        current = self.get_current().version
        old = [each for each in self.versions()[: -keep or None] if each != current]
        removed = [version for version in old if self._try_to_remove(version)]
        oldest = self.versions()[0]
        for path in self.quarantine.glob("*"):
            if is_version(path.name) and path.name < oldest:
                shutil.rmtree(path, ignore_errors=True)
        return removed

    def _try_to_remove(self, version: str) -> bool:
        """Remove a release unless a reader holds the shared lock on its manifest. Return whether it was removed.

        A reader that opens the manifest meanwhile notices that it was moved.
        """
        gone = self.releases / f"{_GONE}{version}"
        with suppress(BlockingIOError), (self.release(version) / MANIFEST).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.release(version).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            return True
        return False
