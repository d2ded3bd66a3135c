"""The events of jobs in a file: one line each, by their numbers, each once."""

import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

_TAIL_BYTES = 65_536
_AT_ONCE = 500


class _Numbered(msgspec.Struct):
    number: int


class EventFile:
    """The file tells by itself which number it ends with: nothing else has to be remembered."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def publish(self, events_after: Callable[[int, int], Sequence[bytes]]) -> int:
        """Append the events that are missing, and return how many. `events_after` gets a number and how many at most.

        A half line that a crash has left is cut off before. Processes append one at a time.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            new = events_after(_last_number(file.fileno()), _AT_ONCE)
            if new:
                file.write(b"".join(event + b"\n" for event in new))
                file.flush()
                os.fsync(file.fileno())
        return len(new)


def _last_number(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
    complete = tail[: tail.rfind(b"\n") + 1]
    if len(complete) < len(tail):
        os.ftruncate(descriptor, size - len(tail) + len(complete))
    lines = complete.splitlines()
    return msgspec.json.decode(lines[-1], type=_Numbered).number if lines else 0
