"""Reads CSV files line by line: each row has its line number, and a malformed line does not affect the others.

The files are UTF-8, with or without a byte order mark, with a header in each. A row is one line; cells that hold the delimiter
or a quote are quoted.
"""

import csv
from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.spec import FLAW, LINE, PLACE, SHOWN_CHARACTERS, TEXT, cleaned, column_names, first_flaw
from notification_service.jobs.spark.job_settings import SourceSettings

LONGEST_LINE_BYTES = 1 << 20
_BYTE_ORDER_MARK = "\ufeff"
_MALFORMED = "_malformed"
_PARALLELISM = "spark.sql.files.minPartitionNum"


class CsvRows(NamedTuple):
    """Rows as described in `jobs.lookups.rows`, without `source`; and their number, by a separate count of lines."""

    rows: DataFrame
    counted: int


def read_csv(spark: SparkSession, source: SourceSettings, wanted: Sequence[str], required: Sequence[str]) -> CsvRows:
    """Return the rows. Also fixes the session's division of files into blocks.

    Raises:
        JobRefused: There is no file, a file is empty, or a header is wrong.
    """
    _fix_blocks(spark)
    lines, counted = _numbered(spark, source)
    header = _header(lines, source)
    names = column_names(wanted, required, source.columns, header, source.place)
    schema = ", ".join(f"{cell} string" for cell in (*[f"c{number}" for number in range(len(header))], _MALFORMED))
    options = {
        "sep": source.delimiter,
        "quote": '"',
        "escape": '"',
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _MALFORMED,
    }
    value = F.col("value")
    rows = lines.where((F.col(LINE) > 1) & ~_is_blank())
    rows = rows.withColumn("row", F.from_csv(F.left(value, F.lit(LONGEST_LINE_BYTES)), schema, options))
    quotes = F.length(value) - F.length(F.replace(value, F.lit('"'), F.lit("")))
    flaw = first_flaw(
        (F.octet_length(value) > LONGEST_LINE_BYTES, F.concat(F.lit("a line of "), F.octet_length(value), F.lit(" bytes"))),
        (~F.is_valid_utf8(value), "not UTF-8"),
        (quotes % 2 == 1, "a quoted cell does not end on its line"),
        (F.col(f"row.{_MALFORMED}").isNotNull(), f"not {len(header)} cells; quote a cell that holds the delimiter"),
    )
    cells = {name: F.col(f"row.c{header.index(names[name])}") if name in names else F.lit(None) for name in wanted}
    read = rows.select(
        PLACE,
        LINE,
        F.make_valid_utf8(F.left(value, F.lit(SHOWN_CHARACTERS))).alias(TEXT),
        flaw.alias(FLAW),
        *[cleaned(cell.cast("string")).alias(name) for name, cell in cells.items()],
    )
    return CsvRows(read, counted)


def _fix_blocks(spark: SparkSession) -> None:
    """Fix how Spark divides files into blocks. By default the number of cores at the start of a query decides.

    Executors come and go between the queries of a job, but line counts per block are valid only for the same blocks.
    """
    if spark.conf.get(_PARALLELISM, None) is None:
        spark.conf.set(_PARALLELISM, spark.sparkContext.defaultParallelism)


class _Lines(NamedTuple):
    """`rows` is the number of lines without headers and blank lines."""

    numbered: DataFrame
    rows: int


def _numbered(spark: SparkSession, source: SourceSettings) -> _Lines:
    """Number the lines. Spark reads a file in blocks; a block's lines continue the numbers of the blocks before it.

    Within a block `monotonically_increasing_id` ascends by 1; the lines of each block are counted first.
    """
    metadata = ("_metadata.file_path", "_metadata.file_block_start")
    read = spark.read.text(source.path).select(
        "value", F.col(metadata[0]).alias(PLACE), F.col(metadata[1]).alias("block"), F.monotonically_increasing_id().alias("id")
    )
    blocks = read.groupBy(PLACE, "block").agg(
        F.count("*").alias("lines"), F.min("id").alias("first"), F.count_if(~_is_blank()).alias("filled")
    )
    before = Window.partitionBy(PLACE).orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    starts = blocks.select(PLACE, "block", "first", F.coalesce(F.sum("lines").over(before), F.lit(0)).alias("before"), "filled")
    found = starts.collect()  # A row per block of at most 128 MB.
    schema = StructType(
        [StructField(PLACE, StringType()), *[StructField(name, LongType()) for name in ("block", "first", "before")]]
    )
    known = F.broadcast(spark.createDataFrame([tuple(each)[:-1] for each in found], schema))
    number = F.col("before") + F.col("id") - F.col("first") + 1
    numbered = read.join(known, [PLACE, "block"]).select("value", PLACE, number.alias(LINE))
    headers = len({each[PLACE] for each in found})
    return _Lines(numbered, sum(each["filled"] for each in found) - headers)


def _is_blank() -> Column:
    return F.trim("value") == ""


def _header(lines: DataFrame, source: SourceSettings) -> list[str]:
    """Return the header, which must be the same in all files."""
    first = lines.where(F.col(LINE) == 1).select(PLACE, F.left("value", F.lit(LONGEST_LINE_BYTES)), F.is_valid_utf8("value"))
    headers: dict[tuple[str, ...], str] = {}
    for place, value, is_valid in first.collect():  # A row per file.
        if not is_valid:
            raise JobRefused(f"{place}:1: the header is not UTF-8; save the file as UTF-8")
        cells = next(csv.reader([value.removeprefix(_BYTE_ORDER_MARK)], delimiter=source.delimiter), [])
        headers[tuple(cell.strip() for cell in cells)] = place
    if not headers or not any(map(any, headers)):
        raise JobRefused(f"{source.place}: is empty; its first line must name the columns")
    if len(headers) > 1:
        one, other, *_ = headers.values()
        raise JobRefused(
            f"{source.place}: {one} and {other} have different headers; use the same header, or make them two sources"
        )
    return list(next(iter(headers)))
