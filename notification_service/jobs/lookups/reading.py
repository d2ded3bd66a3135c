"""Reads the sources of a lookup into one table of rows, and counts and checks the rows of each source."""

from collections.abc import Callable, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.column_source import read_jdbc, read_parquet
from notification_service.jobs.lookups.csv_source import read_csv
from notification_service.jobs.lookups.listed_source import read_listed
from notification_service.jobs.lookups.rows import FLAW, SOURCE
from notification_service.jobs.lookups.spec import LookupSpec
from notification_service.jobs.spark.errors import SPARK_ERRORS, cause_of
from notification_service.jobs.spark.job_settings import SourceSettings
from notification_service.lookups.manifest import Source

_WITH_COLUMNS = ("csv", "parquet", "jdbc")
"""Formats whose column names are chosen by the maker of the source."""

Learn = Callable[[SourceSettings, Path], DataFrame]
"""Makes the rows learned from an archive, and keeps them under the path."""


class Reading(NamedTuple):
    """All rows, flawed ones too, with the number of their source (from 0).

    `counted` holds each source's number of rows by a count made before; None for sources that were not counted.
    """

    rows: DataFrame
    counted: tuple[int | None, ...]


def read_sources(
    spark: SparkSession, sources: Sequence[SourceSettings], spec: LookupSpec, staging: Path, learn: Learn | None = None
) -> Reading:
    """Read all sources. Data that must be read only once is kept in `staging`.

    Raises:
        JobRefused: A source cannot be read; the text names its place.
    """
    read, counted = [], []
    for number, source in enumerate(sources):
        try:
            staged = staging / f"{spec.name}-{number}"
            rows, count = (
                (learn(source, staged), None) if learn and source.format == "archive" else _read(spark, source, spec, staged)
            )
        except SPARK_ERRORS as error:
            raise JobRefused(f"{source.place}: cannot be read: {cause_of(error)}") from error
        read.append(rows.select(F.lit(number).alias(SOURCE), *rows.columns))
        counted.append(count)
    return Reading(reduce(DataFrame.unionByName, read), tuple(counted))


def _read(spark: SparkSession, source: SourceSettings, spec: LookupSpec, staged: Path) -> tuple[DataFrame, int | None]:
    if source.format == "csv":
        return read_csv(spark, source, spec.columns, spec.required)
    if source.format == "parquet":
        return read_parquet(spark, source, spec.columns, spec.required), None
    if source.format == "jdbc":
        return read_jdbc(spark, source, spec.columns, spec.required, staged), None
    return read_listed(spark, source, spec.columns), None


def tally_columns(sources: Sequence[SourceSettings], spec: LookupSpec) -> list[Column]:
    """Return the columns to observe while the rows pass.

    For each source they give the number of rows, of refused rows, a checksum of all rows, and for each column the number of good
    rows with a value. The checksum does not depend on the order of the rows.
    """
    tallies = []
    for number, source in enumerate(sources):
        its = F.col(SOURCE) == number
        good = its & F.col(FLAW).isNull()
        content = F.xxhash64(*[F.col(name) for name in spec.columns])
        tallies += [
            F.count_if(its).alias(f"read_{number}"),
            F.count_if(its & F.col(FLAW).isNotNull()).alias(f"refused_{number}"),
            F.sum(F.when(its, content.cast("decimal(38,0)"))).alias(f"content_{number}"),
            *[F.count_if(good & given).alias(f"filled_{number}_{name}") for name, given in _given(source, spec).items()],
        ]
    return tallies


def _given(source: SourceSettings, spec: LookupSpec) -> dict[str, Column]:
    """Return for each column the condition that a row has a value."""
    return {name: F.col(name).isNotNull() for name in spec.columns if source.format in _WITH_COLUMNS}


def tallied(sources: Sequence[SourceSettings], spec: LookupSpec, observed: dict[str, int]) -> tuple[Source, ...]:
    return tuple(
        Source(
            spec.name,
            source.place,
            f"{int(observed[f'content_{number}'] or 0) % 2**128:032x}",
            observed[f"read_{number}"],
            observed[f"refused_{number}"],
            filled={name: observed[f"filled_{number}_{name}"] for name in _given(source, spec)},
        )
        for number, source in enumerate(sources)
    )


def refuse_incomplete(counted: Sequence[int | None], tallies: Sequence[Source]) -> None:
    """Raise JobRefused if a source gave another number of rows than were counted before."""
    for count, tally in zip(counted, tallies, strict=True):
        if count is not None and count != tally.rows_read:
            raise JobRefused(
                f"{tally.place}: {count} rows of {tally.table} were counted, but {tally.rows_read} were read; "
                "build again once the program that writes the source is done"
            )


def check_shares(sources: Sequence[SourceSettings], tallies: Sequence[Source], quarantine: Path) -> None:
    """Raise JobRefused if a source has no rows, or a smaller share of good rows than it must have."""
    for source, tally in zip(sources, tallies, strict=True):
        if tally.rows_read == 0:
            raise JobRefused(f"{source.place}: has no rows; add some, or remove it from the sources of {tally.table}")
        good = 1 - tally.rows_refused / tally.rows_read
        if good < source.required_good_share:
            raise JobRefused(
                f"{source.place}: {tally.rows_refused} of {tally.rows_read} rows of {tally.table} were refused, which leaves "
                f"{good:.4f} of them; {source.required_good_share:g} are required (required-good-share). They are in {quarantine}"
            )


def check_values(before: Sequence[Source], tallies: Sequence[Source], value_drop: float) -> None:
    """Raise JobRefused if a smaller share of a source's rows has a value in a column than in the release before.

    A source is compared with the earlier one of the same place, else with the one at the same index of the list.
    """
    by_place = {each.place: each for each in before}
    for number, tally in enumerate(tallies):
        earlier = by_place.get(tally.place) or (before[number] if number < len(before) else None)
        if earlier is None or not tally.good:
            continue
        for name, filled in tally.filled.items():
            was, now = earlier.filled.get(name, 0) / max(1, earlier.good), filled / tally.good
            if now < was * (1 - value_drop):
                raise JobRefused(
                    f"{tally.place}: {now:.4f} of the rows of {tally.table} have a value in the column {name!r} after {was:.4f} "
                    f"in the release before, which may lose {value_drop:g} of that (limits.value-drop); check whether the column "
                    "has another name now, and raise the limit if the loss is right"
                )


def refuse_changed(before: Sequence[Source], after: Sequence[Source]) -> None:
    """Raise JobRefused if a source changed between its two readings: the first is checked, the second is written."""
    for was, became in zip(before, after, strict=True):
        if (was.fingerprint, was.rows_read, was.rows_refused) != (became.fingerprint, became.rows_read, became.rows_refused):
            raise JobRefused(
                f"{was.place}: changed while it was read ({was.rows_read} rows of {was.table}, then {became.rows_read}); "
                "build again once the program that writes the source is done"
            )
