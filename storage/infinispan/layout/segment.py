"""Segments: one per commit, with its changes and the names of all values that it builds on. Pure."""

from collections.abc import Callable, Container, Iterable, Sequence
from enum import Enum
from hashlib import sha256
from struct import Struct, error
from typing import NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from resequencer.clock import Instant
from resequencer.storage_port import Header, Snapshot, StashEntry, StorageRefused, UnitChange, WaitKind, Waits

WaitsRow: TypeAlias = tuple[Instant, WaitKind, Instant, str, str, int, int]
"""The fields of `Waits`, in order."""


class UnitRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of a unit (in a segment), or the whole unit (in a page; then `removed` is empty).

    `data` is None if it did not change. With `begins` earlier data of the unit does not count, because it has expired.
    `changed_at` is a time of the partition's caught-up clock.
    """

    unit: str
    state: bytes
    changed_at: int
    waits: WaitsRow | None
    stash: tuple[tuple[int, bytes], ...] = ()
    removed: tuple[int, ...] = ()
    data: bytes | None = None
    begins: bool = False

    @property
    def size(self) -> int:
        """About its size when encoded, in bytes."""
        size = 100 + len(self.unit) + len(self.state) + len(self.data or b"") + 9 * len(self.removed)
        for _, body in self.stash:
            size += len(body) + 12
        return size

    def is_idle_since(self, until: int) -> bool:
        """Whether nothing waits in the unit and it did not change after `until`."""
        return self.waits is None and self.changed_at <= until


def record_of(change: UnitChange, changed_at: int, *, begins: bool) -> UnitRecord:
    return UnitRecord(
        change.unit,
        change.state,
        changed_at,
        None if change.waits is None else row_of(change.waits),
        tuple((entry.offset, entry.body) for entry in change.stash_added),
        change.stash_removed,
        change.data,
        begins,
    )


def row_of(waits: Waits) -> WaitsRow:
    row: WaitsRow = msgspec.structs.astuple(waits)
    return row


def waits_of(row: WaitsRow) -> Waits:
    return Waits(row[0], WaitKind(row[1]), *row[2:])


def combined(base: UnitRecord | None, changes: Iterable[UnitRecord]) -> UnitRecord | None:
    """Return the whole unit after `changes`, oldest first; None if there are neither base nor changes.

    Changes that `base` includes already may be repeated, if all later changes are repeated too. The result is the same.
    """
    whole = base
    for change in changes:
        whole = _followed(None if change.begins else whole, change)
    return whole


def snapshot_of(record: UnitRecord) -> Snapshot:
    """Return the snapshot of a whole unit."""
    return Snapshot(record.unit, record.state, record.data, tuple(StashEntry(*entry) for entry in record.stash))


def _followed(whole: UnitRecord | None, change: UnitRecord) -> UnitRecord:
    stash, data = change.stash, change.data
    if whole is not None:
        if whole.stash:
            kept = dict(whole.stash)
            for offset in change.removed:
                kept.pop(offset, None)
            stash = tuple((kept | dict(stash)).items())
        data = whole.data if data is None else data
    return UnitRecord(change.unit, change.state, change.changed_at, change.waits, tuple(sorted(stash)), (), data)


USUAL_FORMAT = 2
"""The oldest format, and that of all values but the segments below."""

WITH_ORDERS = 3
"""The format of a segment whose header knows orders. A version that does not know them would drop what it cannot read."""

WITH_SOURCE_STATE = 4
"""The format of a segment whose header has a state of its source. It is the newest one."""

PART_BYTES = 4 * 2**20
"""The largest body of a part. A server accepts 10 MB by default."""

_FRAME = Struct(">3scBIQ")
_MAGIC = b"RSQ"
_BEGIN_ANEW = "restore the cache from a backup, or clear it to start empty: notifications may then repeat"


class Kind(Enum):
    """The kind of a value. Its sign is in the value's frame and name."""

    SEGMENT = "s"
    PAGE = "p"
    INDEX_BLOCK = "l"


class Value(NamedTuple):
    """A value to write: a name that was never used before, its bytes, and the format that a reader must know."""

    kind: Kind
    name: str
    payload: bytes
    version: int = USUAL_FORMAT


class Missing(Exception):
    """A value to which another value refers is missing. Never leaves the storage: what reads a partition treats it."""


def cut(value: Value) -> list[tuple[str, bytes]]:
    """Return the names and bodies of the value's parts. The first part has the value's name.

    Write the first part last: its existence shows that the value is complete.
    """
    sign = value.kind.value.encode()
    frame = _FRAME.pack(_MAGIC, sign, value.version, _checksum(value.payload, value.version), len(value.payload))
    framed = frame + value.payload
    bodies = [framed[begin : begin + PART_BYTES] for begin in range(0, len(framed), PART_BYTES)]
    return list(zip(part_names(value.name, len(bodies)), bodies, strict=True))


def part_names(name: str, parts: int) -> list[str]:
    return [name, *(f"{name}~{number}" for number in range(1, parts))]


def count_parts(payload_bytes: int) -> int:
    return -(-(_FRAME.size + payload_bytes) // PART_BYTES)


def joined(kind: Kind, name: str, first: bytes, read: Callable[[str], bytes]) -> bytes:
    """Return the payload of a value whose first part is `first`; `read` returns the other parts.

    Raises:
        StorageRefused: The value is damaged, of another kind or program, or of a newer format.
        Missing: If `read` raises it.
    """
    try:
        magic, sign, version, checksum, length = _FRAME.unpack_from(first)
    except error:
        raise _damaged(name, "is truncated") from None
    if magic != _MAGIC or sign != kind.value.encode():
        raise StorageRefused(name, f"is not a {kind.name.lower()} of the service; use a separate cache for the service")
    if version > WITH_SOURCE_STATE:
        text = f"has format {version}, this version of the service knows {WITH_SOURCE_STATE}"
        raise StorageRefused(name, f"{text}; start the newer version that wrote it, or set another cache")
    if version < USUAL_FORMAT:
        raise _damaged(name, f"has format {version}, which this version of the service does not read")
    if len(first) != min(PART_BYTES, _FRAME.size + length):
        raise _damaged(name, "is truncated")
    payload, others = first[_FRAME.size :], count_parts(length) - 1
    if others:
        payload = b"".join((payload, *(read(f"{name}~{number + 1}") for number in range(others))))
    if _checksum(payload, version) != checksum:
        raise _damaged(name, "is damaged: its checksum is wrong")
    return payload


def _checksum(payload: bytes, version: int) -> int:
    return crc32(payload, version - 1)


def _damaged(name: str, problem: str) -> StorageRefused:
    return StorageRefused(name, f"{problem}; {_BEGIN_ANEW}")


def undecodable(name: str, reason: Exception) -> StorageRefused:
    """Return the error for a complete payload that cannot be decoded."""
    return _damaged(name, f"cannot be decoded ({reason})")


NEVER = -1
"""A time before all times of a caught-up clock."""


class ExpiryWatermark(msgspec.Struct, frozen=True, array_like=True):
    """The watermark of a segment: idle units that last changed at `until` or before have expired.

    `spared` are exceptions, each with the time of its last change. All times are of the partition's caught-up clock.
    """

    until: int = NEVER
    spared: tuple[tuple[str, int], ...] = ()


class ExpiredUnits:
    """The watermark of a partition for its owner. The watermark moves only with commits, and never goes back.

    A unit that was loaded or changed is in memory until a call of `move` excludes it. Its next commit writes only what changed,
    so the stored rest must not expire.
    """

    def __init__(self, watermark: ExpiryWatermark) -> None:
        self.until = watermark.until
        self._next = watermark.until
        # Each with the time of its last change. The young units are in memory, and the watermark has not reached them.
        self._spared = dict(watermark.spared)
        self._young: dict[str, int] = {}

    def has(self, record: UnitRecord) -> bool:
        """Whether the unit has expired. The record may be the unit's last change or the whole unit."""
        return record.is_idle_since(self.until) and record.unit not in self._spared

    @property
    def spared(self) -> Sequence[str]:
        """The units in memory that are older than this watermark or the next one."""
        return tuple(self._spared)

    def note_in_memory(self, record: UnitRecord) -> None:
        """Note that the unit is in memory: it was loaded, or a commit with this change is valid."""
        self._spared.pop(record.unit, None)
        self._young.pop(record.unit, None)
        if record.waits is None:
            (self._spared if record.changed_at <= self._next else self._young)[record.unit] = record.changed_at

    def move(self, until: int, in_memory: Container[str]) -> None:
        """Move the watermark to `until` with the next commit. Units in memory that it passes are spared."""
        known = self._spared | self._young
        # A spared unit also stays if `until` is below the last watermark, because the retention was made longer.
        kept = {unit: at for unit, at in known.items() if unit in in_memory or until < at <= self._next}
        self._next = max(self._next, until)
        self._spared = {unit: at for unit, at in kept.items() if at <= self._next}
        self._young = {unit: at for unit, at in kept.items() if at > self._next}

    def next_watermark(self, changes: Sequence[UnitRecord]) -> ExpiryWatermark:
        """Return the watermark of the next commit, which makes these changes."""
        changed = {record.unit: record.changed_at for record in changes if record.is_idle_since(self._next)}
        changing = {record.unit for record in changes}
        unchanged = {unit: at for unit, at in self._spared.items() if unit not in changing}
        return ExpiryWatermark(self._next, tuple((unchanged | changed).items()))

    def take_up(self, watermark: ExpiryWatermark, changes: Sequence[UnitRecord]) -> None:
        """Take over the watermark of a commit that has become valid."""
        self.until = watermark.until
        for record in changes:
            self.note_in_memory(record)


MAX_COMMITS = 2**32 - 1
"""The most commits under one token. After that, the worker takes the partition over again, with another token."""


class CommitVersion(NamedTuple):
    """The value of a partition's counter: a token and the number of commits under it. Token 0: it was never opened."""

    token: int
    commit: int

    def packed(self) -> int:
        return self.token << 32 | self.commit


def version_of(counter: int) -> CommitVersion:
    return CommitVersion(counter >> 32, counter & MAX_COMMITS)


def token_of(text: str) -> int:
    """Return a random text as a token: 31 bits, never 0."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") % (2**31 - 1) + 1


def token_text(token: int) -> str:
    """Return the text of a token in headers and names."""
    return f"{token:08x}"


def version_of_header(header: Header) -> CommitVersion:
    return CommitVersion(int(header.token, 16), header.commit)


class WindowRow(msgspec.Struct, frozen=True, array_like=True):
    """A segment with changes that are not in pages yet: its name, its number of parts, and how many changes are in pages."""

    name: str
    parts: int
    compacted: int


class IndexBlockRow(msgspec.Struct, frozen=True, array_like=True):
    name: str
    parts: int


class SegmentManifest(msgspec.Struct, frozen=True, array_like=True):
    """The values on which a segment builds.

    The pages are those from `tail` up to `head`. A page's writer is the token of the last of `origins` that begins at the page or
    before. `garbage` has the names of unused values that may not be deleted yet. `watermark` determines the expired units.
    """

    window: tuple[WindowRow, ...] = ()
    blocks: tuple[IndexBlockRow, ...] = ()
    origins: tuple[tuple[int, int], ...] = ()
    tail: int = 0
    head: int = 0
    garbage: tuple[str, ...] = ()
    watermark: ExpiryWatermark = ExpiryWatermark()


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A commit. `pending` is the whole unpublished output. `pins` are the pages on whose units `changes` build."""

    header: Header
    attempt: str | None = None
    manifest: SegmentManifest = SegmentManifest()
    pending: tuple[tuple[int, bytes], ...] = ()
    pins: tuple[int, ...] = ()
    changes: tuple[UnitRecord, ...] = ()

    @property
    def version(self) -> CommitVersion:
        return version_of_header(self.header)

    @property
    def format(self) -> int:
        """The format that a reader of this segment must know."""
        if self.header.source_state:
            return WITH_SOURCE_STATE
        return WITH_ORDERS if self.header.orders else USUAL_FORMAT


encode_segment = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Segment).decode


def decode_segment(name: str, payload: bytes) -> Segment:
    """Decode a segment. Raises StorageRefused if the payload is not one."""
    try:
        return _decode(payload)
    except msgspec.DecodeError as error:
        raise undecodable(name, error) from error
