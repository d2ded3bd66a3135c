"""`positions.json`: how far each partition was published, and how long the output files were at that moment."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from connectors.files.errors import translated
from connectors.files.numbers import from_ranges, to_ranges
from connectors.files.operations import FileOperations, sync_directory, write_all
from connectors.port import Position, TransportRefused
from domain.record import Partition

FORMAT = 1
_LOG = logging.getLogger(__name__)


class Positions(msgspec.Struct, frozen=True):
    """`lengths` are those of the output files by name, in bytes. A position's `beyond` has left in spite of it.

    `rotated` is the number of the last one that was rotated, by the same names: none is given twice, wherever they went.
    """

    lengths: Mapping[str, int]
    partitions: Mapping[Partition, Position]
    rotated: Mapping[str, int] = {}


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""What a database takes too."""


class _Format(msgspec.Struct):
    format: int


class _Entry(msgspec.Struct):
    topic: str
    partition: _Count
    offset: _Count
    metadata: str
    beyond: list[tuple[int, int]] = []


class _Document(msgspec.Struct):
    format: int
    lengths: dict[str, _Count]
    partitions: list[_Entry]
    rotated: dict[str, _Count] = {}


class PositionsFile:
    """Replaced as a whole, so that it is always one that was written: after a power cut perhaps an older one."""

    def __init__(self, path: Path, files: FileOperations) -> None:
        self._path = path
        self._files = files
        self._lasting: frozenset[Partition] = frozenset()

    def read(self) -> Positions | None:
        """None where it is missing or damaged.

        Raises:
            TransportRefused: A newer version wrote it.
        """
        try:
            with translated(self._path):
                data = _read_whole(self._path)
            if data is None:
                return None
            if (version := msgspec.json.decode(data, type=_Format).format) != FORMAT:
                remedy = "Start the version that wrote it, or drain there and move the output directory away"
                raise TransportRefused(str(self._path), f"has format {version}, this version reads {FORMAT}. {remedy}")
            return _from_document(msgspec.json.decode(data, type=_Document))
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            _LOG.error("%s is damaged (%s): the output files are searched for what has left", self._path, error)
            return None

    def write(self, positions: Positions) -> None:
        """Durable in its content, not in its name: a power cut may bring back an older one, with the same partitions.

        Raises:
            TransportUnavailable: It is still the one before.
        """
        fresh = self._path.with_suffix(".json.tmp")
        with translated(fresh):
            descriptor = self._files.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                write_all(self._files, descriptor, msgspec.json.encode(_to_document(positions)) + b"\n")
                self._files.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._files.replace(fresh, self._path)
            if not positions.partitions.keys() <= self._lasting:
                sync_directory(self._files, self._path.parent)
                self._lasting = frozenset(positions.partitions)


def _read_whole(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _from_document(document: _Document) -> Positions:
    partitions = {
        Partition(each.topic, each.partition): Position(each.offset, each.metadata, from_ranges(each.beyond))
        for each in document.partitions
    }
    return Positions(document.lengths, partitions, document.rotated)


def _to_document(positions: Positions) -> _Document:
    entries = [
        _Entry(partition.topic, partition.number, position.offset, position.metadata, to_ranges(position.beyond))
        for partition, position in positions.partitions.items()
    ]
    return _Document(FORMAT, dict(positions.lengths), entries, dict(positions.rotated))
