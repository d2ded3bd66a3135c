"""`partition-N.archived`: the offset at which a partition file begins after the lines before it moved to the archive."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from guardian.ports import TransportRefused
from notification_service.connectors.files.errors import translated
from notification_service.connectors.files.operations import FileOperations, sync_directory, write_all

FORMAT = 1
BLOCK_BYTES = 4096


def kept_from(end: int) -> int:
    """Return where the bytes begin that stay in a partition file before `end`, however much of it moves to the archive.

    They prove later that it is the same file: up to two blocks of it, and more than one if there are so many.
    """
    return max(0, (end - 1) // BLOCK_BYTES - 1) * BLOCK_BYTES


class _Document(msgspec.Struct):
    """`to` is the start of the first line that is still in the partition file."""

    format: int
    to: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ArchivedMarker:
    """The marker of one partition file. It lies beside the file, so that both are copied and moved together.

    An update replaces the marker file as a whole.
    """

    def __init__(self, partition_file: Path, files: FileOperations) -> None:
        self.path = partition_file.with_suffix(".archived")
        self._files = files

    def offset(self) -> int:
        """Return the offset at which the partition file begins; 0 if nothing was archived.

        Raises:
            TransportRefused: The marker is damaged, or a newer version wrote it.
        """
        with translated(self.path):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return 0
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            remedy = 'Write {"format":1,"to":N} to it; N is the second number in the name of the last file in the archive'
            raise TransportRefused(str(self.path), f"is damaged ({error}). {remedy}") from error
        if document.format != FORMAT:
            raise TransportRefused(
                str(self.path), f"has format {document.format}, this version reads {FORMAT}. Start the version that wrote it"
            )
        return document.to

    def move_to(self, offset: int) -> None:
        """Set the marker to `offset`, durably.

        Raises:
            TransportUnavailable: The marker holds either its earlier offset or this one.
        """
        fresh = self.path.with_suffix(".archived.tmp")
        with translated(fresh):
            descriptor = self._files.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(self._files, descriptor, msgspec.json.encode(_Document(FORMAT, offset)) + b"\n")
                self._files.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._files.replace(fresh, self.path)
            sync_directory(self._files, self.path.parent)
