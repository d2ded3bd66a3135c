"""Reads `dead-letters.jsonl` and the files rotated out of it, and rebuilds each line's dead letter."""

import logging
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from guardian.ports import Channel, TransportRefused
from notification_service.connectors.dead_letters.actions import (
    Action,
    Deed,
    EditProposed,
    EditRejected,
    LetterId,
    StoredDeadLetter,
    stored_dead_letter,
)
from notification_service.connectors.files.line_reader import FoundLine
from notification_service.connectors.files.operations import FileOperations
from notification_service.connectors.files.output import OutputFile
from notification_service.connectors.files.positions import find_number
from notification_service.connectors.files.rotated_names import find_rotated
from notification_service.connectors.files.scan import scan, scan_output
from notification_service.connectors.line_format import Defect, decode_line

FILE_NAME = "dead-letters-actions.jsonl"

_DECODER: msgspec.json.Decoder[Action] = msgspec.json.Decoder(Action)


class ActionsFile:
    """The log of actions beside `dead-letters.jsonl`. Only one process may append at a time; the caller holds a lock."""

    def __init__(self, directory: Path, files: FileOperations) -> None:
        self.path = directory / FILE_NAME
        self._files = files
        self._output = OutputFile(self.path, files)
        self._is_open = False

    def read(self) -> Iterator[Action]:
        """Yield all complete actions in order.

        Raises:
            TransportRefused: A line is no action, so it is unknown which dead letters were requeued.
        """
        for line in scan(self.path, self._files):
            try:
                yield _DECODER.decode(line.content)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                problem = f"the line at byte {line.start} is not an action ({error}). Restore the file"
                raise TransportRefused(str(self.path), problem) from error

    def last(self) -> dict[LetterId, Deed]:
        """Return the last deed on each dead letter that has one."""
        return {each.letter_id: each for each in self.read() if not isinstance(each, EditProposed | EditRejected)}

    def append(self, actions: Sequence[Action]) -> None:
        """Append the actions durably, all or none. A torn last line, left by a crash, is cut off first.

        Raises:
            TransportUnavailable: No space, or the disk fails; none of the actions counts.
        """
        if self._is_open:
            self._output.revisit()
        else:
            self._output.open(0)
            self._is_open = True
        self._output.append(b"".join(msgspec.json.encode(action) + b"\n" for action in actions))

    def close(self) -> None:
        self._output.close()
        self._is_open = False


_MAX_LOGGED = 1_000
_LOG = logging.getLogger("resequencer.connectors")


class DeadLettersFile:
    """The dead letters of an output directory. Only reads; the service may be appending meanwhile."""

    def __init__(self, directory: Path, files: FileOperations) -> None:
        self.path = directory / f"{Channel.DEAD_LETTERS}.jsonl"
        self._files = files
        self._logged: set[tuple[Path, int]] = set()

    def letters(self) -> Iterator[StoredDeadLetter]:
        """Yield the dead letters of all complete lines in order, one at a time in memory.

        A line that is no dead letter is skipped and logged once.
        """
        for path, line in scan_output(self.path, self._files):
            read = _read(line)
            if isinstance(read, StoredDeadLetter):
                yield read
            else:
                self._log(path, line.start, read)

    def find_others(self) -> list[str]:
        """Return names of files in the directory that look like dead letters moved aside; `letters` does not read them."""
        if not self.path.parent.is_dir():
            return []
        names = {each.name for each in self.path.parent.iterdir() if each.name.startswith(Channel.DEAD_LETTERS)}
        read = {self.path.name, *(each.path.name for each in find_rotated(self.path))}
        return sorted(name for name in names - read if not name.startswith(FILE_NAME))

    def _log(self, path: Path, start: int, defect: Defect) -> None:
        if (path, start) not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add((path, start))
            _LOG.warning("%s: skipped the line at byte %d, which is no dead letter: %s", path, start, defect.problem)


def _read(line: FoundLine) -> StoredDeadLetter | Defect:
    if line.cut:
        return Defect(f"it has {line.cut.length} bytes")
    number, read = find_number(line.content), decode_line(line.content)
    if isinstance(read, Defect):
        return read
    if number is None:
        return Defect("it has no number")
    try:
        digest = blake2b(line.content, digest_size=16).hexdigest()
        return stored_dead_letter(str(number), digest, read.key, read.headers, read.value)
    except ValueError as error:
        return Defect(str(error))
