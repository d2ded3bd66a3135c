"""The events of jobs in a file: one line each, by their numbers, each once."""

import fcntl
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from notification_service.connectors.files.operations import SystemFiles, sync_directory, write_all
from notification_service.delivery.core.jobs import JobEvent
from notification_service.delivery.core.published_events import EventLog, find_event, is_of, next_events
from storage.private_file import make_lasting_directory

_TAIL_BYTES = 65_536
_AT_ONCE = 500
_MODE = 0o640
"""As of the other outputs."""

_BEGINNING = b'{"ledger":'
"""How the line of an event begins."""


class EventFile:
    """The file may be moved away or damaged: the log says what was published, and the file what was not noted any more."""

    def __init__(self, path: Path, log: EventLog) -> None:
        self._path, self._log = path, log
        self._has_lasting_name = False

    def publish(self) -> int:
        """Append the events that are missing, and return how many.

        Half an event that a crash wrote is cut off first. Processes append one at a time. Lines of another ledger or service,
        and lines that are no events, stay as they are; a last line that has no end gets one.
        """
        make_lasting_directory(self._path.parent)
        with open(self._path, "a+b", opener=partial(os.open, mode=_MODE)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            mark = self._log.find()
            waiting = self._log.after(mark.done, _AT_ONCE)
            if not waiting:
                return 0
            following = next_events(self._log, mark, waiting, self._behind(file.fileno(), mark.compared))
            if following.events:
                is_new = os.fstat(file.fileno()).st_size == 0
                _end_last_line(file.fileno())
                file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in following.events))
                file.flush()
                os.fsync(file.fileno())
                if is_new or not self._has_lasting_name:
                    # The process that made the file may have been killed before it did this.
                    sync_directory(SystemFiles(), self._path.parent)
                    self._has_lasting_name = True
            self._log.note(following.mark)
        return len(following.events)

    def _behind(self, descriptor: int, number: int) -> Iterator[JobEvent]:
        """Yield the events that may be of this service and have a higher number, the last one first."""
        for line in _lines_from_the_end(descriptor):
            found = find_event(line)
            if found is None or not is_of(found, self._log):
                continue
            if found.number > number:
                yield found
            elif found.service:
                return


def _end_last_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    last = tail[tail.rfind(b"\n") + 1 :]
    is_event = last[: len(_BEGINNING)] == _BEGINNING[: len(last)]
    if last and is_event and find_event(last) is None:
        os.ftruncate(descriptor, size - len(last))
    elif last:
        write_all(SystemFiles(), descriptor, b"\n")


def _lines_from_the_end(descriptor: int) -> Iterator[bytes]:
    at, remainder = os.fstat(descriptor).st_size, b""
    while at > 0:
        length = min(_TAIL_BYTES, at)
        at -= length
        first, *others = (os.pread(descriptor, length, at) + remainder).split(b"\n")
        yield from reversed(others)
        remainder = first
    yield remainder
