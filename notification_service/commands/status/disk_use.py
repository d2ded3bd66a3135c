"""Measures the disk space of a service's files by their purpose; of an input with an archived beginning, what is left."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from notification_service.configuration.configuration import Configuration
from notification_service.supervision.run_lock import NAME as LOCK
from notification_service.supervision.service_log import NAME
from storage.embedded.commit_log import logs_of

_BLOCK_BYTES = 512


class Taken(msgspec.Struct, frozen=True):
    """Disk space in `bytes`, as the file system counts it: in whole blocks."""

    files: int
    bytes: int


def disk_use(configuration: Configuration) -> dict[str, Taken]:
    """Return the disk space of each group of files that may grow; missing or unreadable files count as nothing."""
    ingress, notification, database = configuration.ingress, configuration.notification, configuration.storage.embedded_file
    run_directory = notification.run_directory
    places = {
        "input": _names(ingress.file_directory),
        "archive": _names(ingress.archive_directory),
        "output": _names(notification.output_directory),
        "facts": _names(configuration.aggregation.facts_directory),
        "database": [database],
        "database log": [database.with_name(f"{database.name}-wal"), *logs_of(database)],
        "service log": [each for each in _names(run_directory) if each.name.startswith(NAME)],
    }
    return {name: _taken(paths) for name, paths in places.items()}


def in_words(use: dict[str, Taken]) -> str:
    """Return one line of text, without groups that take no space."""
    return ", ".join(
        f"{name} {each.bytes / 1e6:.1f} MB" + (f" in {each.files} files" if each.files > 1 else "")
        for name, each in use.items()
        if each.files
    )


def _names(directory: Path) -> list[Path]:
    try:
        with os.scandir(directory) as entries:
            return [directory / each.name for each in entries if each.is_file(follow_symlinks=False) and each.name != LOCK]
    except OSError:
        return []


def _taken(paths: Iterable[Path]) -> Taken:
    files = size = 0
    for path in paths:
        try:
            size += path.stat().st_blocks * _BLOCK_BYTES
        except OSError:
            continue
        files += 1
    return Taken(files, size)
