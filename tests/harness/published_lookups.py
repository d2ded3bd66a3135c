"""Publishes releases of lookups without a Spark job: it writes the same files from dicts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from zlib import crc32

import msgspec

from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import ReleaseManifest, Table
from notification_service.lookups.publication import Publication, write_shard
from notification_service.lookups.shapes import key_of

NOW = 1_790_000_000_000
Rows = Mapping[bytes, bytes]


def publish(directory: LookupsDirectory, tables: Mapping[str, Rows], shards: int = 1, now: int = NOW) -> ReleaseManifest:
    """Publish tables, each `{key: value}`, as the next release; each release has a version of its own."""
    with directory.publishing():
        publication = Publication(directory, now, "test")
        written = {name: _write(publication.table_path(name), rows, shards) for name, rows in tables.items()}
        return publication.publish(written, ())


def shaped(rows: Mapping[tuple[str, ...], Sequence[str | None]]) -> Rows:
    """Encode keys from their parts and values as arrays, as the service reads them."""
    return {key_of(*key): msgspec.json.encode(value) for key, value in rows.items()}


def _write(path: Path, rows: Rows, shards: int) -> Table:
    parts: list[list[tuple[bytes, bytes]]] = [[] for _ in range(shards)]
    for key, value in sorted(rows.items()):
        parts[crc32(key) % shards].append((key, value))
    return Table(tuple(write_shard(path / f"{number:05}.mdb", [part]) for number, part in enumerate(parts)))
