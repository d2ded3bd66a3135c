"""`dead-letters.jsonl`, and what was rotated out of it, read back: each line a dead letter again, known by its number."""

import logging
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from pathlib import Path

import msgspec

from connectors.file_dead_letter_actions import FILE_NAME, LetterId
from connectors.file_line_reader import FoundLine
from connectors.file_lines import Defect, decode_line
from connectors.file_numbers import find_number, format_number
from connectors.file_operations import FileOperations
from connectors.file_rotated import find_rotated
from connectors.file_scan import scan_output
from connectors.port import Channel
from domain.dead_letter import DeadLetter, DeadLetterReason
from domain.identifiers import shown
from domain.record import Cut, Headers, Origin, Partition, Record
from domain.wire import WireContext

_FIRST_OF_OURS = "dead-letter-reason"
_POSITION = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})@(0|[1-9][0-9]{0,18})", re.DOTALL)
_MOST_TOLD = 1_000
_LOG = logging.getLogger(__name__)


class FiledLetter(msgspec.Struct, frozen=True):
    """A dead letter and the line it stands on.

    `number` is what people name it by. `digest` is the line's: numbers may begin again where all state was lost, and what was
    done with one letter must not be taken for another's. `headers` are all that it has, ours included.
    """

    number: str
    digest: str
    headers: Headers
    letter: DeadLetter

    @property
    def letter_id(self) -> LetterId:
        return self.number, self.digest

    @property
    def unit(self) -> str | None:
        """The unit that the value names if it can be read that far, else the record's key; None if there is neither."""
        record = self.letter.record
        return _find_unit(record.value) or (None if record.key is None else record.key.decode("utf-8", "replace"))


class DeadLettersFile:
    """The dead letters of an output directory, which a service may be adding to; nothing is written here."""

    def __init__(self, directory: Path, files: FileOperations) -> None:
        self.path = directory / f"{Channel.DEAD_LETTERS}.jsonl"
        self._files = files
        self._told: set[tuple[Path, int]] = set()

    def letters(self) -> Iterator[FiledLetter]:
        """Those whose lines are complete, in order, one at a time in memory.

        What is no dead letter is passed over, and logged once.
        """
        for path, line in scan_output(self.path, self._files):
            read = _read(line)
            if isinstance(read, FiledLetter):
                yield read
            else:
                self._tell(path, line.start, read)

    def find_others(self) -> list[str]:
        """Names beside it under which dead letters seem to have been moved away; they are not read."""
        if not self.path.parent.is_dir():
            return []
        names = {each.name for each in self.path.parent.iterdir() if each.name.startswith(Channel.DEAD_LETTERS)}
        read = {self.path.name, *(each.path.name for each in find_rotated(self.path))}
        return sorted(name for name in names - read if not name.startswith(FILE_NAME))

    def _tell(self, path: Path, start: int, defect: Defect) -> None:
        if (path, start) not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add((path, start))
            _LOG.warning("%s: the line at byte %d is no dead letter: %s", path, start, defect.problem)


def _read(line: FoundLine) -> FiledLetter | Defect:
    if line.cut:
        return Defect(f"it has {line.cut.length} bytes")
    number, read = find_number(line.content), decode_line(line.content)
    if isinstance(read, Defect):
        return read
    if number is None:
        return Defect("it has no number")
    ours = max((at for at, (name, _) in enumerate(read.headers) if name == _FIRST_OF_OURS), default=None)
    if ours is None:
        return Defect(f"it has no header {_FIRST_OF_OURS}")
    try:
        said = {name: value.decode() for name, value in read.headers[ours:]}
        record = Record(_origin(said), read.value, read.key, read.headers[:ours], cut=_cut(said))
        letter = DeadLetter(
            record, DeadLetterReason(said[_FIRST_OF_OURS]), said["dead-letter-error"], _instant(said["dead-letter-at"])
        )
    except (KeyError, ValueError) as error:
        return Defect(f"its headers cannot be read: {error}")
    digest = blake2b(line.content, digest_size=16).hexdigest()
    return FiledLetter(format_number(*number), digest, read.headers, letter)


def _origin(said: Mapping[str, str]) -> Origin:
    text = said["dead-letter-source-position"]
    position = _POSITION.fullmatch(text)
    if position is None:
        raise ValueError(f"{shown(text)} is no position")
    return Origin(Partition(position[1], int(position[2])), int(position[3]))


def _cut(said: Mapping[str, str]) -> Cut | None:
    length = said.get("dead-letter-value-length")
    return None if length is None else Cut(int(length), said["dead-letter-value-sha256"])


def _instant(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class _Owned(msgspec.Struct, rename="camel"):
    processing_context: WireContext | None = None


_OWNED = msgspec.json.Decoder(_Owned)


def _find_unit(value: bytes) -> str | None:
    try:
        context = _OWNED.decode(value).processing_context
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return context.unit_of_work_id if context else None
