"""Writes a table's shards in the tasks; the driver gets the shards' metadata only, and no key.

The copy has the layout of its source. `current` is replaced last, so its readers always get a complete release.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from py4j.java_gateway import java_import
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused, NotShared
from notification_service.jobs.lookups.spec import FLAW, KEYS, LINE, PLACE, SOURCE, TEXT, VALID_FROM, VALUE
from notification_service.jobs.spark.session import SPARK_ERRORS, cause_of
from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import Shard, Table, is_version
from notification_service.lookups.publication import Row, write_shard

KEY, ROWS, IS_CONTRADICTORY = "key", "rows", "is_contradictory"
_ALWAYS = -(10**9)


def resolve(checked: DataFrame, today: date) -> DataFrame:
    """Return `key`, `value`, the key's number of `rows`, and whether it `is_contradictory`."""
    source, day = F.col(SOURCE), _day()
    latest = F.max(F.struct(source, day, VALUE))
    # The same source and day, but the smallest value instead of the largest.
    counter = F.min(F.struct(-source, -day, F.col(VALUE)))
    found = _of_today(checked, today).groupBy(KEY).agg(latest.alias("latest"), counter.alias("counter"), F.count("*").alias(ROWS))
    contradiction = F.col(f"latest.{VALUE}") != F.col(f"counter.{VALUE}")
    return found.select(KEY, F.col(f"latest.{VALUE}").alias(VALUE), ROWS, contradiction.alias(IS_CONTRADICTORY))


def contradictions(checked: DataFrame, resolved: DataFrame, today: date) -> DataFrame:
    """Return the rows of contradictory keys, with the contradiction as their flaw."""
    keys = resolved.where(IS_CONTRADICTORY).select(F.col(KEY).alias("contradictory"))
    rows = _of_today(checked, today)
    flaw = F.concat(F.lit("contradicts another row of the key '"), F.replace(KEY, F.lit("\x1f"), F.lit(" ")), F.lit("' "))
    return (
        rows.join(keys, rows[KEY] == keys["contradictory"], "left_semi")
        .drop(FLAW)
        .select(SOURCE, PLACE, LINE, TEXT, flaw.alias(FLAW))
    )


def _of_today(checked: DataFrame, today: date) -> DataFrame:
    days = (today - date(1970, 1, 1)).days
    is_valid = F.col(VALID_FROM).isNull() | (F.col(VALID_FROM) <= days)
    return checked.where(F.col(FLAW).isNull() & is_valid).withColumn(KEY, F.explode(KEYS))


def _day() -> Column:
    return F.coalesce(F.col(VALID_FROM), F.lit(_ALWAYS))


ROWS_PER_SHARD = 2_000_000
MAX_SHARDS = 1_024
_SHARD = "shard"
_WRITTEN = "shard int, file string, rows long, bytes long, sha256 string"


def shard_count(rows: int) -> int:
    return min(MAX_SHARDS, max(1, -(-rows // ROWS_PER_SHARD)))


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


def copy_release(spark: SparkSession, directory: LookupsDirectory, version: str, url: str, keep: int) -> None:
    """Copy the release, streaming the bytes through the driver. The newest `keep` releases stay there, others are deleted.

    Raises:
        JobRefused: The copy failed; `current` there still names the release that it named before.
    """
    try:
        _Target(spark, url).take(directory, version, keep)
    except SPARK_ERRORS as error:
        raise JobRefused(
            f"{version} is published in {directory.path}, but could not be copied to {url} (copy-to): {cause_of(error)}"
        ) from error


class _Target:
    def __init__(self, spark: SparkSession, url: str) -> None:
        context: Any = spark.sparkContext
        self._gateway = context._gateway  # noqa: SLF001 - pyspark offers no other way to Hadoop.
        self._java = self._gateway.jvm
        java_import(self._java, "org.apache.hadoop.fs.*")
        self._options = context._jsc.hadoopConfiguration()  # noqa: SLF001 - as above.
        self._base = self._java.Path(url)
        self._files = self._base.getFileSystem(self._options)

    def take(self, directory: LookupsDirectory, version: str, keep: int) -> None:
        draft, release = self._at(f"building/{version}"), self._at(f"releases/{version}")
        self._files.mkdirs(self._at("building"))
        self._files.mkdirs(self._at("releases"))
        if not self._files.exists(release):
            self._copy(directory.release(version), draft)
            self._replace(draft, release)
        self._copy(directory.path / "current", self._at("current.new"))
        self._replace(self._at("current.new"), self._at("current"))
        self._sweep(version, keep)

    def _copy(self, source: Path, target: Any) -> None:
        """Copy, replacing what an earlier try has written."""
        self._files.delete(target, True)
        self._files.copyFromLocalFile(False, True, self._java.Path(source.absolute().as_uri()), target)

    def _sweep(self, current: str, keep: int) -> None:
        names = sorted(each.getPath().getName() for each in self._files.listStatus(self._at("releases")))
        others = [name for name in names if is_version(name) and name != current]
        for old in others[: max(0, len(others) - keep + 1)]:
            self._files.delete(self._at(f"releases/{old}"), True)

    def _replace(self, source: Any, target: Any) -> None:
        """Rename with overwriting, atomically if the file system supports that; `FileSystem.rename` cannot overwrite."""
        overwrite = self._java.org.apache.hadoop.fs.Options.Rename.OVERWRITE
        options = self._gateway.new_array(self._java.org.apache.hadoop.fs.Options.Rename, 1)
        options[0] = overwrite
        self._java.FileContext.getFileContext(self._files.getUri(), self._options).rename(source, target, options)

    def _at(self, name: str) -> Any:
        return self._java.Path(self._base, name)
