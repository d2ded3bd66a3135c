"""What a release says of itself: `manifest.json`, written last, and the pointer that names the release to be used."""

from pathlib import Path

import msgspec

from enrichment.errors import ReleaseRefused

FORMAT = 1
"""Of manifest, shards and values. A reader refuses any other."""


class Shard(msgspec.Struct, frozen=True):
    """A file of a table, by its name in the table's directory. The checksum is SHA-256 of the whole file, in hexadecimal."""

    file: str
    rows: int
    bytes: int
    sha256: str


class Table(msgspec.Struct, frozen=True):
    """The shards in the order of their numbers: a key lies in the one numbered `crc32(key) mod len(shards)`."""

    shards: tuple[Shard, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.shards)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.shards)


class Source(msgspec.Struct, frozen=True):
    """Where a table came from. `fingerprint` is the same for the same content, None where a source has none (a database).

    `filled` counts for each column the good rows that have a value; none are counted where columns cannot be called otherwise.
    `remark` is a sentence on what else was found there.
    """

    table: str
    place: str
    fingerprint: str | None
    rows_read: int
    rows_refused: int
    remark: str | None = None
    filled: dict[str, int] = {}

    @property
    def good(self) -> int:
        return self.rows_read - self.rows_refused


class ReleaseManifest(msgspec.Struct, frozen=True):
    """`version` is also the name of the release's directory; `job_version` that of the code that made it."""

    format: int
    version: str
    created_at: str
    job_version: str
    tables: dict[str, Table]
    sources: tuple[Source, ...] = ()


class Pointer(msgspec.Struct, frozen=True):
    """The content of `current`. The checksum is that of the manifest."""

    version: str
    manifest_sha256: str


class _Format(msgspec.Struct):
    format: int


def encode_manifest(manifest: ReleaseManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode_manifest(content: bytes, file: Path) -> ReleaseManifest:
    """Raises ReleaseRefused if it is no manifest, or of a format that this version does not know."""
    try:
        found = msgspec.json.decode(content, type=_Format).format
        if found != FORMAT:
            remedy = "update the service" if found > FORMAT else "build the lookups anew"
            raise ReleaseRefused(file, f"has format {found}, this version reads {FORMAT}; {remedy}")
        return msgspec.json.decode(content, type=ReleaseManifest)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ReleaseRefused(file, f"is no manifest ({error}); build the lookups anew, or roll back") from error


def decode_pointer(content: bytes, file: Path) -> Pointer:
    """Raises ReleaseRefused if it names no release."""
    try:
        pointer = msgspec.json.decode(content, type=Pointer)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ReleaseRefused(file, f"names no release ({error}); build the lookups anew, or roll back") from error
    if not is_version(pointer.version):
        raise ReleaseRefused(
            file, f"names the release {pointer.version[:60]!r}, which none can be called; build the lookups anew"
        )
    return pointer


def is_version(name: str) -> bool:
    """`20261121T192512123Z`: the instant at which it was begun, to the millisecond."""
    digits = name[:8] + name[9:18]
    return len(name) == 19 and name[8] == "T" and name[18] == "Z" and digits.isascii() and digits.isdigit()
