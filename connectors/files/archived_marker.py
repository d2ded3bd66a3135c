"""`partition-N.archived`: where a partition file begins since what lies before was moved to the archive."""

import os
from pathlib import Path
from typing import Annotated

import msgspec

from connectors.files.errors import translated
from connectors.files.operations import FileOperations, sync_directory, write_all
from connectors.port import TransportRefused

FORMAT = 1


class _Document(msgspec.Struct):
    """`to` is the start of the first line that is still there."""

    format: int
    to: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ArchivedMarker:
    """Of one partition file; beside it, so that the two are copied and moved together. Replaced as a whole."""

    def __init__(self, partition_file: Path, files: FileOperations) -> None:
        self.path = partition_file.with_suffix(".archived")
        self._files = files

    def offset(self) -> int:
        """0 where nothing was archived.

        Raises:
            TransportRefused: It is damaged, or of a newer version.
        """
        with translated(self.path):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return 0
        try:
            document = msgspec.json.decode(data, type=_Document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            remedy = 'It holds {"format":1,"to":N}, N being the second number in the name of the last file in the archive'
            raise TransportRefused(str(self.path), f"is damaged ({error}). {remedy}") from error
        if document.format != FORMAT:
            raise TransportRefused(
                str(self.path), f"has format {document.format}, this version reads {FORMAT}. Start the version that wrote it"
            )
        return document.to

    def move_to(self, offset: int) -> None:
        """Durably.

        Raises:
            TransportUnavailable: It is the one before, or this one.
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
