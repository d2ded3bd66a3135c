"""Caches the releases of lookups that a Spark process has opened: opening one reads it whole, about a second per gigabyte.

Several tasks run in such a process, one after the other. It ends with the job, so the cache is never emptied.
"""

from hashlib import sha256
from pathlib import Path

from notification_service.lookups.directory import MANIFEST, LookupsDirectory
from notification_service.lookups.manifest import Pointer, is_version
from notification_service.lookups.release import Release, open_release
from notification_service.lookups.shapes import NoRelease, ReleaseRefused

_opened: dict[tuple[Path, str], Release] = {}


def find_release(directory: Path, version: str) -> Release | None:
    """Return the release; None if the version is gone or damaged."""
    if (directory, version) not in _opened:
        if not is_version(version):
            return None
        lookups = LookupsDirectory(directory)
        try:
            content = (lookups.release(version) / MANIFEST).read_bytes()
            _opened[directory, version] = open_release(lookups, Pointer(version, sha256(content).hexdigest()))
        except (NoRelease, ReleaseRefused, OSError):
            return None
    return _opened[directory, version]
