"""The releases of lookups that a process of Spark's has opened: to open one it is read whole, a second per gigabyte.

Tasks follow each other in such a process, and it ends with the job: what it has opened it keeps.
"""

from hashlib import sha256
from pathlib import Path

from enrichment.directory import MANIFEST, LookupsDirectory
from enrichment.errors import NoRelease, ReleaseRefused
from enrichment.manifest import Pointer, is_version
from enrichment.release import Release, open_release

_opened: dict[tuple[Path, str], Release] = {}


def find_release(directory: Path, version: str) -> Release | None:
    """None where that version is not there any more, or is damaged."""
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
