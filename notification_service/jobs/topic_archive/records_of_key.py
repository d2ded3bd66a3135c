"""Reads the records of one key from an archive on a local path, without Spark: for programs that answer a person at once."""

from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from notification_service.jobs.topic_archive.errors import translated
from notification_service.jobs.topic_archive.newest import RECORDS, find_spans, read_manifest
from notification_service.jobs.topic_archive.span import Span
from resequencer.clock import Instant
from resequencer.record import Headers

_COLUMNS = ["partition", "offset", "value", "headers"]


class ArchivedRecord(NamedTuple):
    """A record of the key."""

    partition: int
    offset: int
    value: bytes
    headers: Headers


class RecordsOfKey(NamedTuple):
    """The records that were found, in order. `archived_at` is when the newest batch was written, None for an empty archive.

    With `is_whole` the whole archive was read; otherwise the time was over, and only its newest batches were.
    """

    records: tuple[ArchivedRecord, ...]
    archived_at: Instant | None
    is_whole: bool


def find_records(location: Path, topic: str, key: bytes, max_seconds: float) -> RecordsOfKey:
    """Return the records with this key, from the newest batch back, for at most so many seconds.

    The keys of a file are read first, and the rest only where one of them is the key. There is no index: the time grows with the
    archive. A batch appears whole and never changes, so this is safe while others write or compact the archive.

    Raises:
        ArchiveRefused: A batch is missing, or a file is damaged.
        ArchiveUnavailable: A file cannot be read now, or pyarrow is not installed.
    """
    until = monotonic() + max_seconds
    found: list[ArchivedRecord] = []
    with translated(location):
        spans = find_spans(location)
        for span in reversed(spans):
            for file in sorted((location / RECORDS / span.name / f"topic={topic}").glob("day=*/*.parquet")):
                for records in _records(file, key):
                    found += records
                    if monotonic() > until:
                        return RecordsOfKey(tuple(sorted(found)), _archived_at(location, spans), is_whole=False)
        return RecordsOfKey(tuple(sorted(found)), _archived_at(location, spans), is_whole=True)


def _archived_at(location: Path, spans: list[Span]) -> Instant | None:
    return read_manifest(location, spans[-1]).archived_at if spans else None


def _records(file: Path, key: bytes) -> Iterator[list[ArchivedRecord]]:
    """Yield the records of each part of a file."""
    from pyarrow import compute, scalar  # Imported here: it belongs to the extra of the jobs.
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as parquet:
        for part in range(parquet.num_row_groups):
            is_it = compute.equal(parquet.read_row_group(part, columns=["key"])["key"], scalar(key))
            if not compute.any(is_it).as_py():
                yield []
                continue
            rows = parquet.read_row_group(part, columns=_COLUMNS).filter(is_it).to_pylist()
            yield [_record(row) for row in rows]


def _record(row: dict[str, Any]) -> ArchivedRecord:
    headers = tuple((each["key"], each["value"] or b"") for each in row["headers"])
    return ArchivedRecord(row["partition"], row["offset"], row["value"] or b"", headers)
