"""Reads the lines of a file in large chunks. Of a line beyond the limit only the beginning is kept in memory."""

from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from resequencer.record import Cut

CHUNK_BYTES = 1024 * 1024
BEGINNING_BYTES = 64 * 1024
"""How many bytes of a cut value are kept, so that people recognise it. The whole value stays where it was read from."""

BEFORE_BYTES = 8 * 1024
"""How many bytes of the lines that were returned are kept."""


class FoundLine(NamedTuple):
    """A line without its newline. If `cut` is set, `content` is only the line's beginning and `cut` holds its full length."""

    start: int
    content: bytes
    cut: Cut | None = None


class _Overlong:
    """The state of a line that is too long for memory, while its end is searched for. `before` is what stands before it."""

    def __init__(self, start: int, beginning: bytes, before: bytes) -> None:
        self.start = start
        self.before = before
        self._beginning = beginning
        self._length = 0
        self._digest = sha256()

    def swallow(self, data: bytes) -> None:
        self._length += len(data)
        self._digest.update(data)

    def found(self) -> FoundLine:
        return FoundLine(self.start, self._beginning, Cut(self._length, self._digest.hexdigest()))


class LineReader:
    """Returns complete lines one by one from `offset`, which is the start of a line. The caller decides when to read how far.

    `read(size, offset)` returns fewer bytes than asked for only at the end of the file. `before` are bytes that stand before
    `offset`.
    """

    def __init__(self, read: Callable[[int, int], bytes], offset: int, limit: int, before: bytes = b"") -> None:
        self._read = read
        self._limit = limit
        self._data = before
        self._base = offset - len(before)
        self._cursor = self._searched = len(before)
        self._overlong: _Overlong | None = None

    @property
    def offset(self) -> int:
        """The start of the next line to be returned."""
        return self._overlong.start if self._overlong else self.progress

    def before(self, size: int) -> bytes:
        """Return the last bytes before `offset` as they were read: `size` of them, and no more than `BEFORE_BYTES`."""
        return self._overlong.before[-size:] if self._overlong else self._data[max(0, self._cursor - size) : self._cursor]

    @property
    def progress(self) -> int:
        """The offset before which all bytes were returned or, within an overlong line, dropped."""
        return self._base + self._cursor

    def next_line(self) -> FoundLine | None:
        """Return the next line if its end was read, else None."""
        at = self._data.find(b"\n", self._searched)
        if at < 0:
            self._searched = len(self._data)
            if self._overlong or self._searched - self._cursor > self._limit:
                self._swallow(self._searched)
            return None
        if self._overlong or at - self._cursor > self._limit:
            return self._end_overlong(at)
        line = FoundLine(self.progress, self._data[self._cursor : at])
        self._cursor = self._searched = at + 1
        return line

    def remainder(self) -> FoundLine | None:
        """Return what was read behind the last newline; None if nothing was. Call it after `fill` has found the end."""
        if self._overlong:
            return self._overlong.found()
        content = self._data[self._cursor :]
        return FoundLine(self.progress, content) if content else None

    def fill(self, end: int) -> bool:
        """Read one more chunk, up to the offset `end` at most; return whether it brought bytes.

        Call it after `next_line` returned None.
        """
        reached = self._base + len(self._data)
        chunk = self._read(min(CHUNK_BYTES, end - reached), reached) if end > reached else b""
        if not chunk:
            return False
        gone = max(0, self._cursor - BEFORE_BYTES)
        self._base += gone
        self._data = self._data[gone:] + chunk
        self._searched -= gone
        self._cursor -= gone
        return True

    def _swallow(self, stop: int) -> _Overlong:
        line = self._overlong
        if line is None:
            beginning = self._data[self._cursor : min(stop, self._cursor + min(self._limit, BEGINNING_BYTES))]
            line = self._overlong = _Overlong(self.progress, beginning, self.before(BEFORE_BYTES))
        line.swallow(self._data[self._cursor : stop])
        self._cursor = stop
        return line

    def _end_overlong(self, at: int) -> FoundLine:
        found = self._swallow(at).found()
        self._overlong = None
        self._cursor = self._searched = at + 1
        return found
