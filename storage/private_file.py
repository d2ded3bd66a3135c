"""Files and directories that are for the service's user alone: they hold payments, names of people, or the state of the service.

The one place that makes them. `docs/operations.md` has the table of what is private in the run directory, and what is not.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700

_FILES = (
    *("state.db*", "delivery.db*", "console.db*", "console-history.db*", "console-users.json", "console-audit-*.jsonl"),
    *("lock", "*.lock", "out/lock", "out/*.lock", "archive/lock", "records/*.lock", "audit/*.lock", "service.log*"),
    *("status*.json*", "bridge.json*", "delivery-*.json*", "service-id", "started.json*"),
    *("aggregation-*.json*", "clock-*.json*", "console.json*", "probes.json*", "region-order-*", "sink-mqtt.json*"),
    *("suspects/*", "orders/*", "groups/*/values.db*", "groups/*/worker-*/*", "groups/*/console/*", "expected.jsonl"),
)
_DIRECTORIES = ("suspects", "orders", "groups/*/worker-*", "groups/*/console")


def make_private(file: Path) -> Path:
    """Make an empty file that only its owner may read and write, or narrow the one that is there; return its path.

    Also for a database of SQLite, before each connection: its write-ahead log gets the same rights, now and when it is made. A
    file that is there is never opened: to close it would take the locks of SQLite's connections in this process from them.

    Raises:
        OSError: It cannot be made. Rights that cannot be changed stay as they are: the file is another user's.
    """
    try:
        file.touch(FILE_MODE, exist_ok=False)
    except FileExistsError:
        for each in (file, *(file.with_name(f"{file.name}{suffix}") for suffix in ("-wal", "-shm"))):
            _narrow(each, FILE_MODE)
    return file


def make_private_directory(directory: Path) -> Path:
    """Make a directory that only its owner may enter, or narrow the one that is there; those above it get the usual rights.

    Raises:
        OSError: It cannot be made.
    """
    make_lasting_directory(directory, DIRECTORY_MODE)
    _narrow(directory, DIRECTORY_MODE)
    return directory


def make_lasting_directory(directory: Path, mode: int = 0o777) -> None:
    """Make a directory and those above it, with names that a power cut does not take: it would take all that is in them, too.

    Raises:
        OSError: It cannot be made.
    """
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    directory.mkdir(mode, parents=True, exist_ok=True)
    for each in reversed(missing):
        with suppress(PermissionError):  # One that may be written and not read cannot be synced.
            sync_directory(each.parent)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_whole(path: Path, content: bytes) -> None:
    """Replace a private file: who reads it finds all of the old content, or all of the new one. A power cut may take both.

    Raises:
        OSError: It cannot be written. The old content stays, and no draft does.
    """
    _replace(path, content, path.with_name(f"{path.name}.new"), sync=False)


def replace_durably(path: Path, content: bytes, writer: str = "new") -> None:
    """Replace a private file as `replace_whole`, so that after the return a power cut leaves the new content.

    `writer` ends the name of the draft: two that may write at once have names of their own.

    Raises:
        OSError: It cannot be written. The old content stays, and no draft does.
    """
    _replace(path, content, path.with_name(f"{path.name}.{writer}"), sync=True)
    sync_directory(path.parent)


def _replace(path: Path, content: bytes, draft: Path, *, sync: bool) -> None:
    try:
        with make_private(draft).open("wb") as file:
            file.write(content)
            file.flush()  # What is not written yet cannot be synced.
            if sync:
                os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def narrow_run_directory(run_directory: Path) -> Iterator[Path]:
    """Narrow what an earlier version has made there, and return what stays wider, because it is another user's."""
    for patterns, mode in ((_FILES, FILE_MODE), (_DIRECTORIES, DIRECTORY_MODE)):
        for path in (each for pattern in patterns for each in run_directory.glob(pattern)):
            if not path.is_symlink() and path.is_dir() == (mode == DIRECTORY_MODE) and not _narrow(path, mode):
                yield path


def _narrow(path: Path, mode: int) -> bool:
    """Take the rights of others away; return whether they have none now. A file that has gone meanwhile has none."""
    with suppress(FileNotFoundError):
        found = path.stat().st_mode & 0o777
        if found & ~mode:
            with suppress(OSError):
                path.chmod(found & mode)
            return not path.stat().st_mode & 0o777 & ~mode
    return True
