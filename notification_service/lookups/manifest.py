"""The manifest of a release, `manifest.json`, which is written last, and the pointer to the release in use."""

from pathlib import Path

import msgspec

from notification_service.lookups.shapes import ReleaseRefused

FORMAT = 1
"""The format of manifest, shards and values. A reader refuses any other format."""


class Shard(msgspec.Struct, frozen=True):
    """A file of a table: its name in the table's directory, and the SHA-256 of the whole file, in hexadecimal."""

    file: str
    rows: int
    bytes: int
    sha256: str


class Table(msgspec.Struct, frozen=True):
    """The shards in the order of their numbers. A key is in the shard with the number `crc32(key) mod len(shards)`."""

    shards: tuple[Shard, ...]

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.shards)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.shards)


class Source(msgspec.Struct, frozen=True):
    """The source of a table. `fingerprint` is the same for the same content, None for a source without one (a database).

    `filled` counts for each column the good rows with a value; it is empty for sources whose columns have fixed names. `remark`
    is a sentence about other findings.
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
    """`version` is also the name of the release's directory. `job_version` is the version of the job that built it."""

    format: int
    version: str
    created_at: str
    job_version: str
    tables: dict[str, Table]
    sources: tuple[Source, ...] = ()


class Pointer(msgspec.Struct, frozen=True):
    """The content of `current`, with the checksum of the release's manifest."""

    version: str
    manifest_sha256: str


class _Format(msgspec.Struct):
    format: int


def encode_manifest(manifest: ReleaseManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1)


def decode_manifest(content: bytes, file: Path) -> ReleaseManifest:
    """Decode a manifest. Raises ReleaseRefused if it is not one, or of an unknown format."""
    try:
        found = msgspec.json.decode(content, type=_Format).format
        if found != FORMAT:
            remedy = "update the service" if found > FORMAT else "build the lookups again"
            raise ReleaseRefused(file, f"has format {found}, this version reads {FORMAT}; {remedy}")
        return msgspec.json.decode(content, type=ReleaseManifest)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ReleaseRefused(file, f"is not a manifest ({error}); build the lookups again, or roll back") from error


def decode_pointer(content: bytes, file: Path) -> Pointer:
    """Decode a pointer. Raises ReleaseRefused if it does not point to a release."""
    try:
        pointer = msgspec.json.decode(content, type=Pointer)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ReleaseRefused(file, f"does not name a release ({error}); build the lookups again, or roll back") from error
    if not is_version(pointer.version):
        raise ReleaseRefused(
            file, f"names the release {pointer.version[:60]!r}, which is not a valid version; build the lookups again"
        )
    return pointer


def is_version(name: str) -> bool:
    """Whether a name is a version: the instant at which the build began, to the millisecond (`20261121T192512123Z`)."""
    digits = name[:8] + name[9:18]
    return len(name) == 19 and name[8] == "T" and name[18] == "Z" and digits.isascii() and digits.isdigit()
