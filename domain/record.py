"""Records: bytes from a source, and where they came from."""

import re
from typing import NamedTuple, TypeAlias

import msgspec

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names may repeat and keep their order, as on Kafka."""


_PARTITION = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})", re.DOTALL)
_ORIGIN = re.compile(r"(.*)-(0|[1-9][0-9]{0,8})@(0|[1-9][0-9]{0,18})", re.DOTALL)
_OFFSETS = 2**63


class Partition(NamedTuple):
    """One ordered log of a source: a Kafka topic partition, or one `partition-N.jsonl`."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"

    @classmethod
    def find(cls, text: str) -> "Partition | None":
        """The partition that this is the text of, None if it is none."""
        found = _PARTITION.fullmatch(text)
        return cls(found[1], int(found[2])) if found else None


class Origin(NamedTuple):
    """Where a record came from: unique and ordered in its partition. What lies between two offsets is the source's affair."""

    partition: Partition
    offset: int

    def __str__(self) -> str:
        """`topic-partition@offset`."""
        topic, number = self.partition
        return f"{topic}-{number}@{self.offset}"

    @classmethod
    def find(cls, text: str) -> "Origin | None":
        """The origin that this is the text of, None if it is none. Offsets are below 2**63, as Kafka's are."""
        found = _ORIGIN.fullmatch(text)
        offset = int(found[3]) if found else _OFFSETS
        return cls(Partition(found[1], int(found[2])), offset) if found and offset < _OFFSETS else None


class Cut(NamedTuple):
    """What a value was before it was cut to a transport's limit."""

    length: int
    sha256: str


class Record(msgspec.Struct, frozen=True, gc=False):
    """Bytes from a source with their origin.

    `defect` says why the source could not read a record out of its bytes (a file line that is no record): `value` then
    holds those very bytes. `cut` is there when the value was longer than the transport's limit: only its beginning is here.
    """

    origin: Origin
    value: bytes
    key: bytes | None = None
    headers: Headers = ()
    defect: str | None = None
    cut: Cut | None = None

    @property
    def size(self) -> int:
        """The bytes that it brought: value, key and headers."""
        return len(self.value) + len(self.key or b"") + sum([len(name) + len(value) for name, value in self.headers])
