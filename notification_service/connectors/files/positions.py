"""`positions.json`: the published position of each partition, and the output files' lengths at that moment."""

import heapq
import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from guardian.ports import Position, TransportRefused
from notification_service.connectors.files.operations import FileOperations, replace_synced, sync_directory, translated
from resequencer.record import OutputNumber, Partition

MAX_NUMBERS = 2**18
"""How many numbers are remembered per partition. The highest are kept, as only output that is still pending is looked up."""


class _Numbered(msgspec.Struct, gc=False):
    number: str


_DECODER = msgspec.json.Decoder(_Numbered)


def find_number(line: bytes) -> OutputNumber | None:
    """Return the number of an output line; None for a line without a number."""
    try:
        return OutputNumber.find(_DECODER.decode(line).number)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None


class FoundNumbers:
    """Collects numbers by partition. Each partition keeps at least its highest `limit` numbers, and at most twice as many."""

    def __init__(self, limit: int = MAX_NUMBERS) -> None:
        self._limit = limit
        self._numbers: dict[Partition, set[int]] = {}

    def add(self, partition: Partition, number: int) -> None:
        numbers = self._numbers.setdefault(partition, set())
        numbers.add(number)
        if len(numbers) >= 2 * self._limit:
            self._numbers[partition] = set(heapq.nlargest(self._limit, numbers))

    def by_partition(self) -> dict[Partition, frozenset[int]]:
        return {partition: frozenset(numbers) for partition, numbers in self._numbers.items()}


def to_ranges(numbers: Collection[int]) -> list[tuple[int, int]]:
    """Return the numbers as ascending ranges, both ends included."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def from_ranges(ranges: Collection[tuple[int, int]]) -> frozenset[int]:
    """Expand the ranges. Raises ValueError for more numbers than the service ever writes: the file is damaged or was edited."""
    if sum(max(0, last - first + 1) for first, last in ranges) > 2 * MAX_NUMBERS:
        raise ValueError(f"ranges of more than {2 * MAX_NUMBERS} numbers")
    return frozenset(number for first, last in ranges for number in range(first, last + 1))


FORMAT = 1
_LOG = logging.getLogger("resequencer.connectors")


class Positions(msgspec.Struct, frozen=True):
    """`lengths` are the output files' lengths in bytes, by name. A position's `beyond` lists numbers published beyond it.

    `rotated` is the number of the last rotated file, by the same names. No number is used twice, even if the file is gone.
    `highest` has the highest number of an output record that was published for each partition, before `beyond`. `before` is how
    many bytes the files had that an output had before its present one, by the same names.
    """

    lengths: Mapping[str, int]
    partitions: Mapping[Partition, Position]
    rotated: Mapping[str, int] = {}
    highest: Mapping[Partition, int] = {}
    before: Mapping[str, int] = {}


_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""The range that the databases accept too."""


class _Format(msgspec.Struct):
    format: int


class _Entry(msgspec.Struct):
    topic: str
    partition: _Count
    offset: _Count
    metadata: str
    beyond: list[tuple[int, int]] = []
    highest: _Count = 0


class _Document(msgspec.Struct):
    format: int
    lengths: dict[str, _Count]
    partitions: list[_Entry]
    rotated: dict[str, _Count] = {}
    before: dict[str, _Count] | msgspec.UnsetType = msgspec.UNSET


class PositionsFile:
    """The stored positions. A write replaces the whole file, so it is always complete; a power cut may restore an older one."""

    def __init__(self, path: Path, files: FileOperations) -> None:
        self._path = path
        self._files = files
        self._lasting: frozenset[Partition] = frozenset()

    def read(self) -> Positions | None:
        """Return the stored positions; None if the file is missing or damaged.

        Raises:
            TransportRefused: A newer version wrote the file.
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
            _LOG.error("%s is damaged (%s); searching the output files for the published numbers instead", self._path, error)
            return None

    def write(self, positions: Positions) -> None:
        """Replace the file. The content is durable, the name is not: a power cut may restore an older file.

        An older file has the same partitions.
        Raises:
            TransportUnavailable: The file still holds the positions before.
        """
        with translated(self._path):
            replace_synced(self._files, self._path, msgspec.json.encode(_to_document(positions)) + b"\n")
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
    highest = {Partition(each.topic, each.partition): each.highest for each in document.partitions if each.highest}
    before = {} if document.before is msgspec.UNSET else document.before
    return Positions(document.lengths, partitions, document.rotated, highest, before)


def _to_document(positions: Positions) -> _Document:
    entries = [
        _Entry(
            topic=partition.topic,
            partition=partition.number,
            offset=position.offset,
            metadata=position.metadata,
            beyond=to_ranges(position.beyond),
            highest=positions.highest.get(partition, 0),
        )
        for partition, position in positions.partitions.items()
    ]
    before = dict(positions.before) or msgspec.UNSET
    return _Document(FORMAT, dict(positions.lengths), entries, dict(positions.rotated), before)
