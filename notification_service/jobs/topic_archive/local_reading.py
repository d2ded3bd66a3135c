"""Reads an archive on a local path, without Spark: its newest manifest, the records of a key, or all of a topic in order."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from notification_service.jobs.errors import ArchiveRefused, ArchiveUnavailable
from notification_service.jobs.topic_archive.manifest import NAME, RECORDS, DirectoryManifest, decode
from notification_service.jobs.topic_archive.span import Span, find_span, visible
from resequencer.clock import Instant
from resequencer.record import Headers

_BESIDE_KEY = ["partition", "offset", "timestamp", "value", "headers"]


class ArchivedRecord(NamedTuple):
    """A record of the archive; `timestamp` is in ms since 1970."""

    partition: int
    offset: int
    timestamp: Instant
    key: bytes | None
    value: bytes
    headers: Headers


@contextmanager
def _translated(location: Path) -> Iterator[None]:
    """Translate what goes wrong while the archive at this path is read without Spark."""
    try:
        yield
    except ImportError as error:
        raise ArchiveUnavailable("the archive is Parquet, and pyarrow is not installed: `make audit` installs it") from error
    except ValueError as error:
        raise ArchiveRefused(f"{location}: a file is damaged ({error}); restore it from a copy") from error
    except OSError as error:
        raise ArchiveUnavailable(f"{location}: {error}") from error


def find_path(location: str) -> Path | None:
    """Return the path of an archive at this path or `file:` URL; None for another URL."""
    scheme, separator, _ = location.partition("://")
    if not separator:
        return Path(location)
    return Path(unquote(urlsplit(location).path)) if scheme == "file" else None


def find_spans(location: Path) -> list[Span]:
    """Return the spans that count, in order.

    Raises:
        ArchiveRefused: A batch is missing.
    """
    found = (find_span(manifest.parent.name) for manifest in (location / RECORDS).glob(f"batch=*/{NAME}"))
    return visible(span for span in found if span is not None)


def read_manifest(location: Path, span: Span) -> DirectoryManifest:
    """Return the manifest of a directory. Raises ArchiveRefused for a damaged one, and OSError."""
    file = location / RECORDS / span.name / NAME
    return decode(file.read_text(encoding="utf-8"), str(file))


def find_newest(location: Path) -> DirectoryManifest | None:
    """Return the manifest of the newest batch; None if nothing was archived.

    Raises:
        ArchiveRefused: A batch is missing, or the manifest is damaged.
        ArchiveUnavailable: A file cannot be read now.
    """
    try:
        spans = find_spans(location)
        return read_manifest(location, spans[-1]) if spans else None
    except OSError as error:
        raise ArchiveUnavailable(f"{location}: {error}") from error


class RecordsOfKey(NamedTuple):
    """The records that were found, in order. `archived_at` is when the newest batch was written, None for an empty archive.

    With `is_whole` the whole archive was read; otherwise the time was over, and only its newest batches were.
    """

    records: tuple[ArchivedRecord, ...]
    archived_at: Instant | None
    is_whole: bool


def find_records(location: Path, topic: str, key: bytes, max_seconds: float, header: str | None = None) -> RecordsOfKey:
    """Return the records with this key, from the newest batch back, for at most so many seconds.

    Records with this `header`, whose value is the key, are found too. The keys (and headers) of a file are read first, and the
    other columns only where one of them is the key. There is no index: the time grows with the archive. A batch appears whole
    and never changes, so this is safe while others write or compact the archive.

    Raises:
        ArchiveRefused: A batch is missing, or a file is damaged.
        ArchiveUnavailable: A file cannot be read now, or pyarrow is not installed.
    """
    return _find(location, topic, lambda file: _records_with(file, key, header), max_seconds)


def find_records_with(location: Path, topic: str, part: bytes, max_seconds: float) -> RecordsOfKey:
    """Return the records whose values have these bytes as a part. All values are read, which takes longer than keys.

    Otherwise, and in what it raises, as `find_records`.
    """
    return _find(location, topic, lambda file: _records_having(file, part), max_seconds)


def _find(location: Path, topic: str, read: Callable[[Path], Iterator[list[ArchivedRecord]]], max_seconds: float) -> RecordsOfKey:
    until = monotonic() + max_seconds
    found: list[ArchivedRecord] = []
    with _translated(location):
        spans = find_spans(location)
        for span in reversed(spans):
            for file in sorted((location / RECORDS / span.name / f"topic={topic}").glob("day=*/*.parquet")):
                for records in read(file):
                    found += records
                    if monotonic() > until:
                        return RecordsOfKey(tuple(sorted(found)), _archived_at(location, spans), is_whole=False)
        return RecordsOfKey(tuple(sorted(found)), _archived_at(location, spans), is_whole=True)


def _archived_at(location: Path, spans: list[Span]) -> Instant | None:
    return read_manifest(location, spans[-1]).archived_at if spans else None


def _records_with(file: Path, key: bytes, header: str | None) -> Iterator[list[ArchivedRecord]]:
    """Yield the records of each part of a file."""
    from pyarrow import array, compute, scalar  # Imported here: it belongs to the extra of the jobs.
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as parquet:
        for part in range(parquet.num_row_groups):
            is_it = compute.fill_null(compute.equal(parquet.read_row_group(part, columns=["key"])["key"], scalar(key)), False)
            if header is not None:
                named = parquet.read_row_group(part, columns=["headers"])["headers"].to_pylist()
                wanted = {"key": header, "value": key}
                is_it = compute.or_(is_it, array([wanted in (each or ()) for each in named]))
            if not compute.any(is_it).as_py():
                yield []
                continue
            columns, known = (_BESIDE_KEY, {"key": key}) if header is None else (["key", *_BESIDE_KEY], {})
            rows = parquet.read_row_group(part, columns=columns).filter(is_it).to_pylist()
            yield [_record(row | known) for row in rows]


def _records_having(file: Path, part: bytes) -> Iterator[list[ArchivedRecord]]:
    """Yield the records of each part of a file whose values have these bytes in them."""
    from pyarrow import compute  # Imported here: it belongs to the extra of the jobs.
    from pyarrow.parquet import ParquetFile

    with ParquetFile(file) as parquet:
        for group in range(parquet.num_row_groups):
            values = parquet.read_row_group(group, columns=["value"])["value"]
            is_it = compute.fill_null(compute.match_substring(values, part), False)
            if not compute.any(is_it).as_py():
                yield []
                continue
            rows = parquet.read_row_group(group, columns=["key", *_BESIDE_KEY]).filter(is_it).to_pylist()
            yield [_record(row) for row in rows]


class _Run(NamedTuple):
    """The records of one partition in one row group of a file: from the offset `first` to `last`."""

    first: int
    last: int
    file: Path
    group: int
    partition: int


def find_ends(location: Path, topic: str) -> Mapping[int, int]:
    """Return up to which offset each partition of the topic is archived.

    Raises:
        ArchiveRefused, ArchiveUnavailable: As `records_in_order`.
    """
    with _translated(location):
        spans = find_spans(location)
        return read_manifest(location, spans[-1]).ends.get(topic, {}) if spans else {}


def records_in_order(
    location: Path, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], piece: int
) -> Iterator[list[ArchivedRecord]]:
    """Yield the records from `starts` (0 where none is given) up to `ends`, in pieces of at most `piece` of one partition.

    Records of a partition come in the order of their offsets. Batches appear whole and never change, so this is safe while others
    write the archive. Each partition's records are looked for in those batches alone that can have them.

    Raises:
        ArchiveRefused: A batch is missing, or a file is damaged.
        ArchiveUnavailable: A file cannot be read now, or pyarrow is not installed.
    """
    with _translated(location):
        for span in find_spans(location):
            archived = read_manifest(location, span).ends.get(topic, {})
            if any(archived.get(number, 0) > starts.get(number, 0) for number in ends):
                runs = _find_runs(location / RECORDS / span.name / f"topic={topic}", starts, ends)
                for number in sorted(runs):
                    within = range(starts.get(number, 0), ends[number])
                    records = (each for each in _merged(runs[number]) if each.offset in within)
                    while found := list(islice(records, piece)):
                        yield found


def _find_runs(directory: Path, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, list[_Run]]:
    """Return by partition the runs of a batch that have records from `starts` up to `ends`."""
    runs: dict[int, list[_Run]] = {}
    for file in sorted(directory.glob("day=*/*.parquet")):
        for run in _runs(file):
            number = run.partition
            if number in ends and run.last >= starts.get(number, 0) and run.first < ends[number]:
                runs.setdefault(number, []).append(run)
    return runs


def _runs(file: Path) -> Iterator[_Run]:
    """Read only partitions and offsets."""
    from pyarrow.parquet import ParquetFile  # Imported here: it belongs to the extra of the jobs.

    with ParquetFile(file) as parquet:
        for group in range(parquet.num_row_groups):
            table = parquet.read_row_group(group, columns=["partition", "offset"])
            bounds = table.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
            yield from (_Run(each["offset_min"], each["offset_max"], file, group, each["partition"]) for each in bounds)


def _merged(runs: list[_Run]) -> Iterator[ArchivedRecord]:
    """Yield the records of the runs by their offsets. A run is in memory only from its first record to its last."""
    waiting = sorted(runs, reverse=True)
    open_runs: list[tuple[ArchivedRecord, int, Iterator[ArchivedRecord]]] = []
    while waiting or open_runs:
        while waiting and (not open_runs or waiting[-1].first <= open_runs[0][0].offset):
            _push(open_runs, len(waiting), _records(waiting.pop()))
        record, number, following = heappop(open_runs)
        yield record
        _push(open_runs, number, following)


def _push(
    open_runs: list[tuple[ArchivedRecord, int, Iterator[ArchivedRecord]]], number: int, records: Iterator[ArchivedRecord]
) -> None:
    following = next(records, None)
    if following is not None:
        heappush(open_runs, (following, number, records))


def _records(run: _Run) -> Iterator[ArchivedRecord]:
    from pyarrow import compute
    from pyarrow.parquet import ParquetFile

    with ParquetFile(run.file) as parquet:
        table = parquet.read_row_group(run.group, columns=["key", *_BESIDE_KEY])
    ours = table.filter(compute.equal(table["partition"], run.partition)).sort_by("offset")
    for batch in ours.to_batches(1_000):
        yield from map(_record, batch.to_pylist())


def _record(row: dict[str, Any]) -> ArchivedRecord:
    headers = tuple((each["key"], each["value"] or b"") for each in row["headers"])
    return ArchivedRecord(row["partition"], row["offset"], row["timestamp"], row["key"], row["value"] or b"", headers)
