"""A message of AMQP 1.0 that arrives in parts: of one beyond the limit only the beginning and a digest are kept. Pure.

A message is a row of sections (AMQP 1.0, part 3, 3.2): annotations of brokers, the properties, the application properties, and
a body of data, of one value, or of sequences. Brokers change their annotations from one delivery to the next, so they are passed
over.
"""

from collections.abc import Callable, Generator
from hashlib import sha256
from typing import NamedTuple

from notification_service.connectors.kafka.core.records import BEGINNING_BYTES
from resequencer.record import Cut

_DESCRIBED = 0x00
_SMALL_ULONG, _ULONG = 0x53, 0x80
_PROPERTIES, _APPLICATION_PROPERTIES = 0x73, 0x74
_BODY = (0x75, 0x76, 0x77)
_SECTIONS = range(0x70, 0x79)
_CONTENT = (0xA0, 0xB0, 0xA1, 0xB1, 0xA3, 0xB3)
"""Bytes and texts, short and long: what follows their length is the value of a record."""

_ENCODING_BYTES = 64 * 1024
"""How many bytes more than the limit are kept, for lengths and types: whether a record exceeds it is measured later, exactly."""

_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_WIDTHS_OF_LENGTH = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}

_Parts = Generator[None, bytes, None]


class Beginning(NamedTuple):
    """What is kept of a message beyond the limit.

    `head` is a message of AMQP 1.0 with its properties alone, without those that exceed the limit. `value` is the beginning of
    the content of the body. If it is the properties that exceed the limit, or if the bytes are no message (`is_message`), it is
    that of the message itself, from its properties on. `cut` has the length and the digest of the same bytes.
    """

    head: bytes
    value: bytes
    cut: Cut
    is_message: bool


class ArrivingMessage:
    """`add` each part as it arrives, then `end`. Properties, and the body, may have `limit` bytes each; `held` bytes are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._length = 0
        self._scan: _Scan | None = None

    @property
    def held(self) -> int:
        return self._length if self._scan is None else self._scan.held

    def add(self, part: bytes) -> None:
        self._length += len(part)
        if self._scan is not None:
            self._scan.add(part)
            return
        self._parts.append(part)
        if self._length > self._limit:
            self._scan = _Scan(self._limit)
            parts, self._parts = self._parts, []
            for each in parts:
                self._scan.add(each)

    def end(self) -> bytes | Beginning:
        """Return the message, or what is kept of it."""
        return b"".join(self._parts) if self._scan is None else self._scan.end()


class _Digested:
    """Bytes of which the first `limit` are kept; a digest stands for all."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._digest = sha256()
        self.beginning = bytearray()
        self.length = 0

    def add(self, part: bytes) -> None:
        self.length += len(part)
        self._digest.update(part)
        self.beginning += part[: self._limit - len(self.beginning)]

    def cut(self) -> Cut:
        return Cut(self.length, self._digest.hexdigest())


class _NoMessage(Exception):
    """The bytes are no message of AMQP 1.0. `passed` were read last."""

    def __init__(self, passed: bytes) -> None:
        super().__init__()
        self.passed = passed


class _Scan:
    """Reads the sections of a message that may be beyond the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit + _ENCODING_BYTES
        self._buffer = bytearray()
        self._head = bytearray()
        self._body: bytearray | None = bytearray()
        self._content = _Digested(min(BEGINNING_BYTES, limit))
        self._bare = _Digested(min(BEGINNING_BYTES, limit))
        self._is_head_whole = True
        self._is_message = True
        self._is_between_sections = True
        self._sections = self._read()
        next(self._sections)

    @property
    def held(self) -> int:
        digested = len(self._content.beginning) + len(self._bare.beginning)
        return len(self._buffer) + len(self._head) + len(self._body or b"") + digested

    def add(self, part: bytes) -> None:
        if self._is_message:
            try:
                self._sections.send(part)
            except _NoMessage as error:
                self._is_message = False
                self._bare.add(error.passed + self._buffer)
                self._buffer.clear()
        else:
            self._bare.add(part)

    def end(self) -> bytes | Beginning:
        is_message = self._is_message and self._is_between_sections and not self._buffer
        head = bytes(self._head)
        if is_message and self._is_head_whole and self._body is not None:
            return head + self._body
        kept = self._content if is_message and self._is_head_whole else self._bare
        return Beginning(head, bytes(kept.beginning), kept.cut(), is_message)

    def _read(self) -> _Parts:
        while True:
            yield from self._fill(1)
            self._is_between_sections = False
            begin = yield from self._descriptor()
            if begin[-1] in _BODY:
                yield from self._read_body(begin)
            else:
                yield from self._read_properties(begin)
            self._is_between_sections = True

    def _descriptor(self) -> Generator[None, bytes, bytes]:
        begin = yield from self._take(2)
        if begin[0] != _DESCRIBED or begin[1] not in (_SMALL_ULONG, _ULONG):
            raise _NoMessage(begin)
        code = yield from self._take(1 if begin[1] == _SMALL_ULONG else 8)
        if int.from_bytes(code, "big") not in _SECTIONS:
            raise _NoMessage(begin + code)
        return begin + code

    def _read_properties(self, begin: bytes) -> _Parts:
        """Keep properties whole or not at all: they are read by their own decoder."""
        constructor, length = yield from self._constructor()
        is_theirs = begin[-1] in (_PROPERTIES, _APPLICATION_PROPERTIES)
        is_kept = is_theirs and len(self._head) + len(begin) + len(constructor) + length <= self._limit
        self._is_head_whole &= is_kept or not is_theirs

        def keep(part: bytes) -> None:
            if is_kept:
                self._head.extend(part)
            if is_theirs:
                self._bare.add(part)

        keep(begin + constructor)
        yield from self._pass(length, keep)

    def _read_body(self, begin: bytes) -> _Parts:
        """Read a section of the body. Of several values within each other, the outermost one gives the content."""
        self._keep(begin)
        awaited, is_outermost = 1, True
        while awaited:
            constructor, length = yield from self._constructor()
            is_content = is_outermost and constructor[0] in _CONTENT
            self._keep(constructor, in_content=not is_content)
            yield from self._pass(length, self._keep_content)
            # A described value is its descriptor and a value.
            awaited += 1 if constructor[0] == _DESCRIBED else -1
            is_outermost = False

    def _keep(self, part: bytes, *, in_content: bool = False) -> None:
        if self._body is not None:
            self._body += part
            if len(self._body) > self._limit:
                self._body = None
        self._bare.add(part)
        if in_content:
            self._content.add(part)

    def _keep_content(self, part: bytes) -> None:
        self._keep(part, in_content=True)

    def _constructor(self) -> Generator[None, bytes, tuple[bytes, int]]:
        """Return the bytes before a value, and the length of the value. A described value has no length of its own."""
        code = yield from self._take(1)
        if code[0] == _DESCRIBED:
            return code, 0
        if (width := _WIDTHS.get(code[0] >> 4)) is not None:
            return code, width
        if (width := _WIDTHS_OF_LENGTH.get(code[0] >> 4)) is None:
            raise _NoMessage(code)
        length = yield from self._take(width)
        return code + length, int.from_bytes(length, "big")

    def _fill(self, count: int) -> _Parts:
        while len(self._buffer) < count:
            part = yield
            self._buffer += part

    def _take(self, count: int) -> Generator[None, bytes, bytes]:
        yield from self._fill(count)
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    def _pass(self, count: int, keep: Callable[[bytes], None]) -> _Parts:
        while count:
            yield from self._fill(1)
            found = bytes(self._buffer[:count])
            del self._buffer[:count]
            count -= len(found)
            keep(found)
