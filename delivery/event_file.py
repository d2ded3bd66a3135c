"""The events of jobs in a file: one line each, by their numbers, each once."""

import fcntl
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Protocol

import msgspec

_TAIL_BYTES = 65_536
_AT_ONCE = 500
_MODE = 0o640
"""As of the other outputs."""

EventsAfter = Callable[[int, int], Sequence[bytes]]
"""Gets a number, and returns the events behind it, as many as the second number at most."""


class _Numbered(msgspec.Struct):
    number: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]


class Mark(Protocol):
    """The number of the last event that was published, as far as it was noted. It may be less than the number."""

    def find(self) -> int: ...

    def note(self, number: int) -> None: ...


class EventFile:
    """The file may be moved away or damaged: the mark says what was published, and the file what was not noted any more."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self._path, self._mark = path, mark

    def publish(self, events_after: EventsAfter) -> int:
        """Append the events that are missing, and return how many.

        A half line that a crash has left is cut off before. Processes append one at a time. Lines of another ledger, and lines
        that are no events, are left as they are.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "a+b", opener=partial(os.open, mode=_MODE)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            noted = self._mark.find()
            last = max(noted, _last_number(file.fileno(), events_after))
            new = events_after(last, _AT_ONCE)
            if new:
                file.write(b"".join(event + b"\n" for event in new))
                file.flush()
                os.fsync(file.fileno())
            if last + len(new) > noted:
                self._mark.note(last + len(new))
        return len(new)


def _last_number(descriptor: int, events_after: EventsAfter) -> int:
    """Return the number of the last line that is an event of the ledger word for word; 0 without one."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    complete = tail[: tail.rfind(b"\n") + 1]
    if len(complete) < len(tail):
        os.ftruncate(descriptor, size - len(tail) + len(complete))
    for line in reversed(complete.splitlines()):
        number = _number(line)
        if number is not None and list(events_after(number - 1, 1)) == [line]:
            return number
    return 0


def _number(line: bytes) -> int | None:
    """Return the number of an event; None if the line is none that a ledger can have written."""
    try:
        return msgspec.json.decode(line, type=_Numbered).number
    except (msgspec.DecodeError, RecursionError):
        return None
