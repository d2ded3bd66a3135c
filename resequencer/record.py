"""Records: bytes from a source, with their origin."""

import re
from itertools import chain
from typing import NamedTuple, TypeAlias

import msgspec

from resequencer.clock import Instant

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names may repeat and keep their order, as on Kafka."""

NO_VALUE = "it has no value"
"""Why a record with a null value is refused where a value is needed."""


_PARTITION = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})", re.DOTALL)
_ORIGIN = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})@(0|[1-9][0-9]{0,18})", re.DOTALL)
_OUTPUT_NUMBER = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})#(0|[1-9][0-9]{0,18})", re.DOTALL)
_OFFSETS = 2**63


class Partition(NamedTuple):
    """One ordered log of a source: a Kafka topic partition, or one `partition-N.jsonl`."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @classmethod
    def find(cls, text: str) -> "Partition | None":
        """Return the partition for its text, None if the text is not one."""
        found = _PARTITION.fullmatch(text)
        return cls(found[1], int(found[2])) if found else None


class Origin(NamedTuple):
    """The origin of a record: unique and ordered in its partition. There may be gaps between offsets."""

    partition: Partition
    offset: int

    def __str__(self) -> str:
        """`topic-partition@offset`."""
        topic, number = self.partition
        return f"{topic}-{number}@{self.offset}"

    @classmethod
    def find(cls, text: str) -> "Origin | None":
        """Return the origin for its text, None if the text is not one. Offsets are below 2**63, as in Kafka."""
        found = _ORIGIN.fullmatch(text)
        offset = int(found[3]) if found else _OFFSETS
        return cls(Partition(found[1], int(found[2])), offset) if found and offset < _OFFSETS else None


class OutputNumber(NamedTuple):
    """The number of an output record, by which operators name a dead letter; unique in its partition.

    In files the partition is that of the input, whose output is numbered from 1. In a topic of dead letters the partition is one
    of that topic, and the number an offset.
    """

    partition: Partition
    number: int

    def __str__(self) -> str:
        """`topic-partition#number`."""
        topic, number = self.partition
        return f"{topic}-{number}#{self.number}"

    @classmethod
    def find(cls, text: str) -> "OutputNumber | None":
        """Return the number for its text, None if the text is not one. Numbers are below 2**63."""
        found = _OUTPUT_NUMBER.fullmatch(text)
        number = int(found[3]) if found else _OFFSETS
        return cls(Partition(found[1], int(found[2])), number) if found and number < _OFFSETS else None


class Cut(NamedTuple):
    """The length and checksum of a value before it was cut to a transport's limit."""

    length: int
    sha256: str


class Record(msgspec.Struct, frozen=True, gc=False):
    """Bytes from a source with their origin. A `value` of None is null, which is not empty.

    `defect` is why the source could not read a record from its bytes (for example an invalid line of a file); `value` then has
    the original bytes. `cut` is set if the value was longer than the transport's limit; `value` is then only its beginning.
    `written_at` is the timestamp that the source has for the record, None if it has none: Kafka's is set by the producer or
    by the broker, and lines of files have none. It decides nothing. It is measured, and a record that passes through keeps it.
    """

    origin: Origin
    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    defect: str | None = None
    cut: Cut | None = None
    written_at: Instant | None = None

    @property
    def content(self) -> bytes:
        """The bytes of the value, none if it is null: for what shows or measures it."""
        return self.value or b""

    @property
    def size(self) -> int:
        """The size in bytes of value, key and headers."""
        return size_of(self.value, self.key, self.headers)


def size_of(value: bytes | None, key: bytes | None, headers: Headers) -> int:
    """Return the size in bytes of the parts of a record."""
    return len(value or b"") + len(key or b"") + size_of_headers(headers)


def size_of_headers(headers: Headers) -> int:
    """Return the size of the names, in characters, and of the values."""
    return sum(map(len, chain.from_iterable(headers)))
