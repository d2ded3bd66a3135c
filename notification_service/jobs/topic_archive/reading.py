"""Reads an archive; safe while others write or compact it."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from heapq import heappop, heappush
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from notification_service.jobs.spark.topics import SCHEMA
from notification_service.jobs.topic_archive.choice import Span
from notification_service.jobs.topic_archive.errors import ArchiveRefused, translated
from notification_service.jobs.topic_archive.layout import Archive, path_of
from notification_service.jobs.topic_archive.manifest import DirectoryManifest, GroupEnds
from notification_service.jobs.topic_archive.newest import RECORDS, find_spans, read_manifest
from resequencer.clock import Instant
from resequencer.record import Headers


class ArchiveSnapshot:
    """The archive as it was when this object was made, whatever is archived or compacted meanwhile.

    `directory` is a path or a URL of Hadoop's. A compaction removes only directories that were replaced hours before, so a reader
    has that long.

    Raises, also from its methods:
        ArchiveRefused: A batch, or a file of one, is missing or damaged.
        ArchiveUnavailable: The file system failed.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        self._spark = spark
        self._archive = Archive(spark, directory)
        self._spans = self._archive.spans()
        self._manifests: dict[Span, DirectoryManifest] = {}

    @property
    def starts(self) -> dict[str, dict[int, int]]:
        """The offset from which each topic is archived, by partition: 0 if from the beginning. Empty for an empty archive."""
        return {} if self._newest is None else self._newest.starts

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        """The offset before which each topic is archived, by partition. Empty for an empty archive."""
        return {} if self._newest is None else self._newest.ends

    @property
    def positions(self) -> dict[int, int] | None:
        """The newest known positions of the service's group, by input partition; None if none are known.

        All output caused by records before them is archived.
        """
        return None if self._settled is None else self._settled.positions

    @property
    def groups(self) -> GroupEnds | None:
        """How far facts and group reports are archived, as of the same moment; None for an archive without them."""
        return None if self._settled is None else self._settled.groups

    @cached_property
    def _settled(self) -> DirectoryManifest | None:
        """The manifest of the newest directory with positions."""
        found = (self._manifest(span) for span in reversed(self._spans))
        return next((each for each in found if each.positions is not None), None)

    def read(self, topic: str) -> DataFrame:
        """Return the topic's records in the columns of `topics.SCHEMA`, each once, in no order.

        Checks first that no file is missing or has another size.
        """
        for span in self._spans:
            self._check(span, topic)
        directories = self._archive.directories(topic, self._spans)
        if not directories:
            return self._spark.createDataFrame([], SCHEMA)
        return self._archive.read(SCHEMA, directories)

    def _check(self, span: Span, topic: str) -> None:
        archived = self._manifest(span).topics.get(topic)
        expected, name = (0 if archived is None else archived.bytes), f"{path_of(span)}/topic={topic}"
        found = self._archive.place.size(name)
        if found != expected:
            raise ArchiveRefused(
                f"{self._archive.place}: the files of {name} have {found:,} bytes, but {expected:,} were archived: restore them "
                "from a copy"
            )

    @cached_property
    def _newest(self) -> DirectoryManifest | None:
        return self._manifest(self._spans[-1]) if self._spans else None

    def _manifest(self, span: Span) -> DirectoryManifest:
        if span not in self._manifests:
            self._manifests[span] = self._archive.manifest(span)
        return self._manifests[span]


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
