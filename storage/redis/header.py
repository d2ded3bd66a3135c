"""A partition's header in Redis: a hash whose fields an operator can read."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from resequencer.record import Partition
from resequencer.storage_port import Header, StorageRefused

FORMAT = 2
"""The format of everything under a partition's keys. Any other one is refused."""

_History = tuple[tuple[str, int], ...]


class StoredHeader(msgspec.Struct, frozen=True):
    """The header with its counts. `header` is None if there never was one.

    `waiting` and `pending` are the counts after the last commit. `idle` is the number of units in the index of idle units, None
    if the index is not complete yet. The log of changes has the entries from `log_begin` to before `log_end`; the last is of the
    commit `log_marker`.
    """

    header: Header | None
    waiting: int = 0
    pending: int = 0
    idle: int | None = 0
    log_begin: int = 0
    log_end: int = 0
    log_marker: str | None = None


def read_header(key: bytes, flat: Sequence[bytes]) -> StoredHeader:
    """Decode the header from the fields and values of the hash.

    Raises:
        StorageRefused: The header is damaged, or of another format.
    """
    if not flat:
        return StoredHeader(None)
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    try:
        _check_format(key, int(fields[b"format"]))
        idle = fields[b"idle"]
        waiting, pending = int(fields.get(b"waiting", 0)), int(fields.get(b"pending", 0))
        log_begin, log_end = int(fields.get(b"log_begin", 0)), int(fields.get(b"log_end", 0))
        log_marker = fields[b"log_marker"].decode() if b"log_marker" in fields else None
        return StoredHeader(_header(fields), waiting, pending, int(idle) if idle else None, log_begin, log_end, log_marker)
    except (KeyError, ValueError) as error:
        raise StorageRefused(name(key), f"is damaged ({error!r}); {restore(key)}") from error


def history_text(header: Header) -> bytes:
    return msgspec.json.encode(header.history)


def name(key: bytes) -> str:
    return f"Redis key {key.decode(errors='backslashreplace')}"


def restore(key: bytes) -> str:
    """Return the remedy for missing or damaged keys."""
    tag = key.decode(errors="backslashreplace").partition("}")[0]
    return (
        f"restore the server from a backup, or delete all keys that begin with {tag}}} to start empty: "
        "notifications may then repeat"
    )


def _check_format(key: bytes, version: int) -> None:
    if version > FORMAT:
        problem = f"its format is {version}, this version of the service knows {FORMAT}"
        raise StorageRefused(name(key), f"{problem}; start the newer version that wrote it, or set another storage.namespace")
    if version < FORMAT:
        raise StorageRefused(name(key), f"its format is {version}, which this version does not read; {restore(key)}")


def _header(fields: Mapping[bytes, bytes]) -> Header:
    next_offset = fields.get(b"next_offset")
    return Header(
        token=fields[b"token"].decode(),
        commit=int(fields[b"commit"]),
        next_offset=None if next_offset is None else int(next_offset),
        highest_number=int(fields.get(b"highest_number", 0)),
        heal_offset=int(fields.get(b"heal_offset", 0)),
        history=msgspec.json.decode(fields[b"history"], type=_History),
        source=fields.get(b"source", b"").decode(),
        caught_up_ms=int(fields.get(b"caught_up_ms", 0)),
        orders=fields.get(b"orders", b"").decode(),
        source_state=fields.get(b"source_state", b"").decode(),
    )


class RedisKeys:
    """The keys begin with one hash tag, so that a cluster keeps a whole partition in one slot.

    Namespace and topic contain neither colons nor braces. A unit's id may contain any character, so it comes last.
    """

    def __init__(self, namespace: str, partition: Partition) -> None:
        self.tag = f"{{{namespace}:{partition.topic}:{partition.number}}}"
        self.header = f"{self.tag}:header".encode()
        self.waiting = f"{self.tag}:waiting".encode()
        self.pending = f"{self.tag}:pending".encode()
        self.changes = f"{self.tag}:changes".encode()
        self.idle = f"{self.tag}:idle".encode()
        self.unit_prefix = f"{self.tag}:unit:".encode()

    def units(self, units: Iterable[str]) -> list[bytes]:
        return [self.unit_prefix + unit.encode() for unit in units]
