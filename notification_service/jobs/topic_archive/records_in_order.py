"""Reads the records of a topic from an archive on a local path, by partition and in order, without Spark."""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from notification_service.jobs.topic_archive.errors import translated
from notification_service.jobs.topic_archive.newest import RECORDS, find_spans, read_manifest
from resequencer.clock import Instant
from resequencer.record import Headers

_COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]


class OrderedRecord(NamedTuple):
    """A record of the archive; `timestamp` is in ms since 1970."""

    partition: int
    offset: int
    timestamp: Instant
    key: bytes | None
    value: bytes
    headers: Headers


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
    with translated(location):
        spans = find_spans(location)
        return read_manifest(location, spans[-1]).ends.get(topic, {}) if spans else {}


def records_in_order(
    location: Path, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], piece: int
) -> Iterator[list[OrderedRecord]]:
    """Yield the records from `starts` (0 where none is given) up to `ends`, in pieces of at most `piece` of one partition.

    Records of a partition come in the order of their offsets. Batches appear whole and never change, so this is safe while others
    write the archive. Each partition's records are looked for in those batches alone that can have them.

    Raises:
        ArchiveRefused: A batch is missing, or a file is damaged.
        ArchiveUnavailable: A file cannot be read now, or pyarrow is not installed.
    """
    with translated(location):
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


def _merged(runs: list[_Run]) -> Iterator[OrderedRecord]:
    """Yield the records of the runs by their offsets. A run is in memory only from its first record to its last."""
    waiting = sorted(runs, reverse=True)
    open_runs: list[tuple[OrderedRecord, int, Iterator[OrderedRecord]]] = []
    while waiting or open_runs:
        while waiting and (not open_runs or waiting[-1].first <= open_runs[0][0].offset):
            _push(open_runs, len(waiting), _records(waiting.pop()))
        record, number, rest = heappop(open_runs)
        yield record
        _push(open_runs, number, rest)


def _push(
    open_runs: list[tuple[OrderedRecord, int, Iterator[OrderedRecord]]], number: int, records: Iterator[OrderedRecord]
) -> None:
    following = next(records, None)
    if following is not None:
        heappush(open_runs, (following, number, records))


def _records(run: _Run) -> Iterator[OrderedRecord]:
    from pyarrow import compute
    from pyarrow.parquet import ParquetFile

    with ParquetFile(run.file) as parquet:
        table = parquet.read_row_group(run.group, columns=_COLUMNS)
    ours = table.filter(compute.equal(table["partition"], run.partition)).sort_by("offset")
    for batch in ours.to_batches(1_000):
        yield from map(_record, batch.to_pylist())


def _record(row: dict[str, Any]) -> OrderedRecord:
    headers = tuple((each["key"], each["value"] or b"") for each in row["headers"])
    return OrderedRecord(row["partition"], row["offset"], row["timestamp"], row["key"], row["value"] or b"", headers)
