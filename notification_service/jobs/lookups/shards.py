"""Writes a table's shards in the tasks; the driver gets the shards' metadata only, and no key."""

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from notification_service.jobs.errors import NotShared
from notification_service.jobs.lookups.resolution import KEY
from notification_service.jobs.lookups.spec import VALUE
from notification_service.lookups.manifest import Shard, Table
from notification_service.lookups.shard_writer import Row, write_shard

ROWS_PER_SHARD = 2_000_000
MOST_SHARDS = 1_024
_SHARD = "shard"
_WRITTEN = "shard int, file string, rows long, bytes long, sha256 string"


def shard_count(rows: int) -> int:
    return min(MOST_SHARDS, max(1, -(-rows // ROWS_PER_SHARD)))


def write_table(pairs: DataFrame, directory: Path, count: int) -> Table:
    """Write `key` and `value`, both texts, into `count` shards under the directory.

    The tasks must see the directory under the same path; on a cluster their working directory is another one.

    Raises:
        NotShared: They do not see it.
    """
    sharded = pairs.select(
        F.pmod(F.crc32(KEY), F.lit(count)).cast("int").alias(_SHARD), F.col(KEY).cast("binary"), F.col(VALUE).cast("binary")
    )
    placed = sharded.repartitionById(count, F.col(_SHARD)).sortWithinPartitions(_SHARD, KEY)
    written = {
        row.shard: row for row in placed.mapInArrow(_writer(str(directory.absolute())), _WRITTEN).collect()
    }  # A row per shard.
    empty = [number for number in range(count) if number not in written]
    shards = {number: Shard(row.file, row.rows, row.bytes, row.sha256) for number, row in written.items()}
    shards |= {number: write_shard(directory / _file_name(number), ()) for number in empty}
    _check(directory, shards.values())
    _drop_abandoned(directory, shards.values())
    return Table(tuple(shards[number] for number in range(count)))


def _writer(directory: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, parts in groupby(_parts(batches), key=itemgetter(0)):
            file = Path(directory, _file_name(number))
            made = write_shard(file, (rows for _, rows in parts))
            columns = {"shard": number, "file": made.file, "rows": made.rows, "bytes": made.bytes, "sha256": made.sha256}
            kinds = (pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.string())
            arrays = [pa.array([value], kind) for value, kind in zip(columns.values(), kinds, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))

    return write


def _parts(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, list[Row]]]:
    """Yield the batches, cut where a shard ends."""
    for batch in batches:
        if not batch.num_rows:
            continue
        numbers = batch.column(0).to_numpy(zero_copy_only=False)
        cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), batch.num_rows]
        for begin, end in pairwise(cuts):
            part = batch.slice(begin, end - begin)
            yield int(numbers[begin]), list(zip(part.column(1).to_pylist(), part.column(2).to_pylist(), strict=True))


def _file_name(number: int) -> str:
    """Return a new name for each attempt: an abandoned attempt may still be writing."""
    return f"{number:05}-{uuid4().hex[:8]}.mdb"


def _check(directory: Path, shards: Collection[Shard]) -> None:
    sizes = {file.name: file.stat().st_size for file in directory.iterdir()}
    there = [each for each in shards if sizes.get(each.file) == each.bytes]
    if len(there) != len(shards):
        raise NotShared(str(directory), sum(each.rows for each in shards), sum(each.rows for each in there))


def _drop_abandoned(directory: Path, shards: Iterable[Shard]) -> None:
    kept = {shard.file for shard in shards}
    for file in directory.iterdir():
        if file.name not in kept:
            file.unlink()
