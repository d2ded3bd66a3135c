"""Gives commands to a store from outside: at least once, for members make a repeated command harmless."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from guardian.headers import MEMBER
from notification_service.connectors.files.operations import translated
from notification_service.connectors.line_format import Line, encode_line
from resequencer.record import Headers
from storage.private_file import make_lasting_directory, sync_directory

_OWN_PARTITION = 1
"""The partition file of commands that do not come from the service: its own worker alone appends to the first."""


class CommandWriter(Protocol):
    """Used from one thread.

    Any call may raise the errors of a transport (guardian/ports.py). Then it is not known whether the command was given.
    """

    def update(self, key: str, member: str | None, body: bytes) -> None:
        """Give a command, durably."""
        ...

    def close(self) -> None: ...


class FileCommands:
    """Appends commands to a partition file, to which several processes may append."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / f"partition-{_OWN_PARTITION}.jsonl"
        self._has_lasting_name = False

    def update(self, key: str, member: str | None, body: bytes) -> None:
        line = encode_line(Line(body, key.encode(), member_headers(member)))
        with translated(self._path):
            make_lasting_directory(self._path.parent)
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                size = os.fstat(descriptor).st_size
                if not size or not self._has_lasting_name:
                    # Before the command: who gets an error here gives it again. The process that made the file may have been
                    # killed before it did this.
                    with suppress(PermissionError):  # A directory that may be written and not read cannot be synced.
                        sync_directory(self._path.parent)
                    self._has_lasting_name = True
                if size and os.pread(descriptor, 1, size - 1) != b"\n":
                    line = b"\n" + line  # A writer was killed: its line becomes a dead letter.
                while line:
                    line = line[os.write(descriptor, line) :]
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def close(self) -> None:
        """Nothing is kept open."""


def member_headers(member: str | None) -> Headers:
    return () if member is None else ((MEMBER, member.encode()),)
