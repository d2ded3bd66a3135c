"""What an audit reads of the file transport: portions of files, read by tasks in parallel."""

import gzip
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from guardian.ports import Channel
from notification_service.connectors.files.input_archive import ArchivedMarker
from notification_service.connectors.files.line_reader import FoundLine, LineReader
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.positions import PositionsFile
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.line_format import Defect, Line, decode_line, is_blank
from notification_service.jobs.audit.rows import (
    DEAD_LETTER,
    NOTIFICATION,
    ORDER,
    OUTCOME,
    RECORD,
    UNPLACED,
    UNREADABLE,
    Row,
    dead_letter_row,
    located,
    notification_row,
    order_rows,
    outcome_rows,
    record_row,
    unreadable_row,
)
from notification_service.jobs.audit.rules import AuditRules
from notification_service.jobs.errors import AuditRefused
from resequencer.record import Cut, Origin, Partition, Record

PORTION_BYTES = 32 * 1024 * 1024
_LATER_FILE = 1 << 44
"""The distance between the places of successive files of one output; no file is as long."""

_BLOCK_BYTES = 64 * 1024
_LONGEST_OUTPUT_LINE = 256 * 1024 * 1024


class Portion(NamedTuple):
    """The lines of a file that begin at `start` or later and before `end`. `limit` is the file's length when the audit began.

    `path` is absolute, because tasks run in other directories. `base` is added to a line's offset to give its place. A packed
    file is one portion; its `start` and `end` are offsets in the partition file that it was a part of. `inode` identifies an
    output file even if the service rotates it meanwhile.
    """

    kind: int
    path: str
    partition: int
    start: int
    end: int
    limit: int
    base: int
    is_packed: bool = False
    begins_line: bool = True
    inode: int = 0


class FileScope(NamedTuple):
    """All portions to read, and how far each partition was settled."""

    portions: list[Portion]
    settled: dict[int, int]

    @property
    def size(self) -> int:
        """The sum of the portions' bytes."""
        return sum(each.end - each.start for each in self.portions)


def find_scope(settings: FileSettings, archive: Path, orders: Path | None = None) -> FileScope:
    """Return the scope. Positions are read first, then outputs, then inputs. `orders` is the directory of the orders, if any.

    So the output that the positions stand for is included, and the input that caused it.

    Raises:
        AuditRefused: A part of the data is gone, so that its content cannot be checked.
    """
    out = settings.out_directory
    positions = PositionsFile(out / "positions.json", SystemFiles()).read()
    if positions is None and (out / "notifications.jsonl").exists():
        raise AuditRefused(
            f"{out / 'positions.json'} is missing or damaged, so it is unknown what was settled; start the service to rewrite it"
        )
    settled = {} if positions is None else {each.number: at.offset for each, at in positions.partitions.items()}
    portions = [
        *output_portions(NOTIFICATION, out / "notifications.jsonl"),
        *output_portions(DEAD_LETTER, out / "dead-letters.jsonl"),
    ]
    if orders is not None:
        portions += output_portions(OUTCOME, out / f"{Channel.ORDER_OUTCOMES}.jsonl")
        for path, number in partition_files(orders):
            portions += cut_up(ORDER, path, number, 0, 0)
    for path, number in partition_files(settings.in_directory):
        portions += _input(path, number, archive)
    if not any(each.kind == RECORD for each in portions):
        raise AuditRefused(f"{settings.in_directory} holds no input; is this the service's configuration?")
    return FileScope(portions, settled)


def partition_files(directory: Path) -> Iterator[tuple[Path, int]]:
    for path in sorted(directory.glob("partition-*.jsonl")):
        number = re.fullmatch(r"partition-([0-9]+)", path.stem)
        if number is not None:
            yield path, int(number[1])


def output_portions(kind: int, path: Path) -> Iterator[Portion]:
    rotated = find_rotated(path)
    if rotated and rotated[0].number != 1:
        raise AuditRefused(
            f"{path.parent}: {path.stem}.000001{path.suffix} to before {rotated[0].path.name} are gone, so the audit cannot "
            "check them; put them back, or keep all of them (payment-status-notification.file.keep-notifications)"
        )
    for place, file in enumerate([*(each.path for each in rotated), path]):
        yield from cut_up(kind, file, UNPLACED, 0, place * _LATER_FILE)


def _input(path: Path, partition: int, archive: Path) -> Iterator[Portion]:
    beginning, reached = ArchivedMarker(path, SystemFiles()).offset(), 0
    name = re.compile(rf"{re.escape(path.stem)}\.([0-9]{{16,18}})-([0-9]{{16,18}})\.jsonl\.gz", re.ASCII)
    found = sorted((int(match[1]), int(match[2]), each) for each in archive.glob("*.gz") if (match := name.fullmatch(each.name)))
    for start, end, packed in found:
        if start == reached and end <= beginning:
            yield Portion(RECORD, str(packed.absolute()), partition, start, end, end, 0, is_packed=True)
            reached = end
    if reached < beginning:
        raise AuditRefused(
            f"{path}: the lines from {reached} to {beginning} are neither in the input nor in {archive}; put them back there"
        )
    yield from cut_up(RECORD, path, partition, beginning, 0)


def cut_up(kind: int, path: Path, partition: int, begin: int, base: int) -> Iterator[Portion]:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return
    size, place = stat.st_size, str(path.absolute())
    for start in range(begin, size, PORTION_BYTES):
        end = min(start + PORTION_BYTES, size)
        yield Portion(kind, place, partition, start, end, size, base, begins_line=start == begin, inode=stat.st_ino)


def read_portion(portion: Portion, rules: AuditRules) -> Iterator[Row]:
    """Yield the portion's lines as rows."""
    settings = FileSettings(rules.settings.topic, Path(), Path(), rules.settings.max_value_bytes)
    longest = settings.max_line_bytes if portion.kind == RECORD else _LONGEST_OUTPUT_LINE
    lines = _packed_lines(portion, longest) if portion.is_packed else plain_lines(portion, longest)
    for line in lines:
        place = portion.base + line.start
        if portion.kind == RECORD:
            if line.cut is None and is_blank(line.content):
                continue
            yield record_row(_record(line, portion.partition, settings), None, rules)
            continue
        where = f"{Path(portion.path).name}, byte {line.start}"
        for row in _rows(portion, line, place, rules):
            yield located(row, where) if row.kind == UNREADABLE else row


def _rows(portion: Portion, line: FoundLine, place: int, rules: AuditRules) -> Iterator[Row]:
    """Yield the rows of a line that is no input record."""
    read = decode_line(line.content)
    if portion.kind == ORDER:
        # The worker takes a line that is none for an order that cannot be read.
        yield from order_rows(b"" if isinstance(read, Defect) else read.content, portion.partition, line.start)
    elif isinstance(read, Defect):
        yield unreadable_row(place, read.problem)
    elif portion.kind == NOTIFICATION:
        yield notification_row(read.key, read.headers, read.value, place)
    elif portion.kind == OUTCOME:
        yield from outcome_rows(read.headers, read.content, place)
    else:
        yield dead_letter_row(_dead_letter(read, rules.settings.topic), place, rules)


def plain_lines(portion: Portion, longest: int) -> Iterator[FoundLine]:
    descriptor = _open(portion)
    try:
        start = _line_start(descriptor, portion)
        reader = LineReader(lambda size, offset: os.pread(descriptor, size, offset), start, longest)
        while (line := reader.next_line()) or reader.fill(portion.limit):
            if line is None:
                continue
            if line.start >= portion.end:
                break
            yield line
    finally:
        os.close(descriptor)


def _open(portion: Portion) -> int:
    path = Path(portion.path)
    for each in (path, *(rotated.path for rotated in find_rotated(path))):
        descriptor = os.open(each, os.O_RDONLY)
        if os.fstat(descriptor).st_ino == portion.inode:
            return descriptor
        os.close(descriptor)
    raise AuditRefused(f"{path}: it was replaced by another file during the audit; audit again")


def _line_start(descriptor: int, portion: Portion) -> int:
    """Return the start of the first line that begins in the portion or behind it."""
    if portion.begins_line:
        return portion.start
    at = portion.start - 1
    while block := os.pread(descriptor, _BLOCK_BYTES, at):
        found = block.find(b"\n")
        if found >= 0:
            return at + found + 1
        at += len(block)
    return portion.limit


def _packed_lines(portion: Portion, longest: int) -> Iterator[FoundLine]:
    with gzip.open(portion.path, "rb") as file:
        start = portion.start
        for content in file:
            line = content.removesuffix(b"\n")
            cut = Cut(len(line), "") if len(line) > longest else None
            yield FoundLine(start, line, cut)
            start += len(content)


def _record(line: FoundLine, partition: int, settings: FileSettings) -> Record:
    """Return the record as the source reads it. Of a value that is too large, the audit needs the beginning only."""
    origin = Origin(Partition(settings.topic, partition), line.start)
    if line.cut is not None:
        return Record(origin, line.content[: settings.max_value_bytes], cut=line.cut)
    read = decode_line(line.content)
    if isinstance(read, Defect):
        return Record(origin, line.content, defect=read.problem)
    return Record(origin, read.value, read.key, read.headers)


def _dead_letter(line: Line, topic: str) -> Record:
    return Record(Origin(Partition(topic, UNPLACED), 0), line.value, line.key, line.headers)
