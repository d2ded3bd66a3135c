"""Records: bytes from a source, and where they came from."""

from typing import NamedTuple, TypeAlias

import msgspec

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
"""Names may repeat and keep their order, as on Kafka."""


class Partition(NamedTuple):
    """One ordered log of a source: a Kafka topic partition, or one `partition-N.jsonl`."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Origin(NamedTuple):
    """Where a record came from: unique and ordered in its partition. What lies between two offsets is the source's affair."""

    partition: Partition
    offset: int

    def __str__(self) -> str:
        """`topic-partition@offset`, the form of the header `source-position`."""
        topic, number = self.partition
        return f"{topic}-{number}@{self.offset}"


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
