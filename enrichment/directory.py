"""Where releases lie: `current` names the one to be used, `releases/<version>/` is each of them.

Switching is renaming one small file. What is being built lies under `building/` and becomes a release by being renamed, so a
release is there whole or not at all.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from enrichment.errors import NoRelease, PublishingRefused
from enrichment.manifest import Pointer, decode_pointer, is_version

MANIFEST = "manifest.json"
_CURRENT = "current"
_GONE = "removing-"


class LookupsDirectory:
    """The directory of one service's lookups, on a file system that all of its readers and its job share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.releases = path / "releases"
        self.building = path / "building"
        self.quarantine = path / "quarantine"

    def get_current(self) -> Pointer:
        """Raises NoRelease where nothing was published, ReleaseRefused if the pointer is damaged, OSError if out of reach."""
        file = self.path / _CURRENT
        try:
            return decode_pointer(file.read_bytes(), file)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NoRelease(self.path) from error

    def release(self, version: str) -> Path:
        return self.releases / version

    def versions(self) -> list[str]:
        """Those that are there, the oldest first."""
        if not self.releases.is_dir():
            return []
        return sorted(each.name for each in self.releases.iterdir() if is_version(each.name))

    def switch(self, pointer: Pointer) -> None:
        """From now on readers use this release. Only for the holder of `publishing`."""
        draft = self.path / f"{_CURRENT}.new"
        with draft.open("wb") as stream:
            stream.write(msgspec.json.encode(pointer) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.rename(self.path / _CURRENT)
        sync_directory(self.path)

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """The lock of whoever builds, switches or removes; the kernel releases it when its holder dies.

        Raises:
            PublishingRefused: Somebody else has it, or the directory cannot be written.
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
        """Remove all but the newest `keep` releases, the current one, and those that a reader has open; what was removed.

        Also removes what a job that died left behind, and what was set aside before the oldest release that stays. Only for the
        holder of `publishing`.
        """
        for left in (*self.releases.glob(f"{_GONE}*"), *self.building.glob("*")):
            shutil.rmtree(left, ignore_errors=True)
        current = self.get_current().version
        old = [each for each in self.versions()[: -keep or None] if each != current]
        removed = [version for version in old if self._try_to_remove(version)]
        oldest = self.versions()[0]
        for left in self.quarantine.glob("*"):
            if is_version(left.name) and left.name < oldest:
                shutil.rmtree(left, ignore_errors=True)
        return removed

    def _try_to_remove(self, version: str) -> bool:
        """Readers hold a shared lock on the manifest; whoever opens it later sees that it is no longer in its place."""
        gone = self.releases / f"{_GONE}{version}"
        with suppress(BlockingIOError), (self.release(version) / MANIFEST).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.release(version).rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            return True
        return False


def sync_directory(directory: Path) -> None:
    """What was renamed in it is so after a power cut, too."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
