"""Reads the sources of a lookup into one table of rows, and counts and checks the rows of each source."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, StringType, TimestampNTZType, TimestampType, VarcharType

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.csv_source import read_csv
from notification_service.jobs.lookups.spec import (
    FLAW,
    LINE,
    PLACE,
    SHOWN_CHARACTERS,
    SOURCE,
    TEXT,
    LookupSpec,
    cleaned,
    column_names,
)
from notification_service.jobs.spark.counted_write import write_rows
from notification_service.jobs.spark.job_settings import SourceSettings
from notification_service.jobs.spark.session import SPARK_ERRORS, cause_of
from notification_service.lookups.manifest import Source
from notification_service.payments.iso20022.codes import STATUS_REASONS

Row = dict[str, str | None]


def read_listed(spark: SparkSession, source: SourceSettings, wanted: Sequence[str]) -> DataFrame:
    """Return rows as described in `notification_service.jobs.lookups.spec`, without `source`.

    Raises:
        JobRefused: The file of codes cannot be read.
    """
    rows = {"iso-codes": lambda: iso_codes(source), "project-codes": project_codes, "bank-registry": bank_registry}
    listed = list(rows[source.format]())
    columns = {name: pa.array([row.get(name) for row in listed], pa.string()) for name in wanted}
    table = spark.createDataFrame(pa.table({"number": pa.array(range(1, len(listed) + 1), pa.int64()), **columns}))
    return table.select(
        F.lit(source.place).alias(PLACE),
        F.col("number").alias(LINE) if source.format == "iso-codes" else F.lit(None).cast("long").alias(LINE),
        F.to_json(F.struct(*wanted)).alias(TEXT),
        F.lit(None).cast("string").alias(FLAW),
        *[cleaned(F.col(name)).alias(name) for name in wanted],
    )


def iso_codes(source: SourceSettings) -> Iterator[Row]:
    """Yield a code set in JSON: `{"codes": {code: definition, …}}`; an entry may be an object with name and definition."""
    try:
        codes = json.loads(Path(source.path).read_text(encoding="utf-8-sig"))["codes"]
        entries = [(code, entry if isinstance(entry, dict) else {"definition": entry}) for code, entry in codes.items()]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise JobRefused(f"{source.place}: cannot be read as a code set ({problem}); it must hold codes, by code") from error
    for code, entry in entries:
        yield {"code": code, **{name: str(entry[name]) for name in ("name", "definition") if entry.get(name) is not None}}


def project_codes() -> Iterator[Row]:
    """Yield the codes that the service knows, without definitions, which are not free to publish."""
    for code in sorted(STATUS_REASONS):
        yield {"code": code}


def bank_registry() -> Iterator[Row]:
    """Yield Schwifty's banks by national code and by BIC, and the place of the national code in each country's IBANs.

    If several branches share a BIC or a code, one stands for them: one in the BIC's own country before others, then a primary
    one, then the first.
    """
    from schwifty import registry  # Imported late, because it reads a megabyte.

    banks = sorted(registry.get_all_banks(), key=lambda bank: ((bank.bic or "")[4:6] != bank.country_code, not bank.primary))
    seen: set[tuple[str, ...]] = set()
    for bank in banks:
        for kind, key in (("bank", (bank.country_code, bank.bank_code)), ("bic", (bank.bic,))):
            if not all(key) or not bank.name or (kind, *key) in seen:
                continue
            seen.add((kind, *key))
            name = " ".join(bank.name.split())
            yield {"kind": kind, "country": bank.country_code, "bank_code": bank.bank_code, "bic": bank.bic, "name": name}
    for country in sorted({bank.country_code for bank in banks}):
        spec = registry.get_iban_spec(country)
        where = {component.value: place for component, place in spec.positions.items()}
        places = [where[component.value] for component in spec.bic_lookup_components if where[component.value].end]
        if places:
            begin, end = min(each.start for each in places), max(each.end for each in places)
            yield {"kind": "iban", "country": country, "begin": str(begin), "end": str(end)}


_TEXTS = (StringType, VarcharType)
_DAYS = (DateType, TimestampType, TimestampNTZType)
_FETCHED_ROWS = "10000"
_DRIVERS = {"jdbc:postgresql:": "org.postgresql.Driver"}


def read_parquet(spark: SparkSession, source: SourceSettings, wanted: Sequence[str], required: Sequence[str]) -> DataFrame:
    """Return rows as described in `notification_service.jobs.lookups.spec`, without `source`.

    Raises:
        JobRefused: The file or a column is missing, or a column has another type.
    """
    try:
        table = spark.read.option("mergeSchema", "true").parquet(source.path)  # By default, one file's columns count for all.
    except SPARK_ERRORS as error:
        raise JobRefused(f"{source.place}: cannot be read as Parquet: {cause_of(error)}") from error
    return _shaped(table, source, wanted, required, F.col("_metadata.file_path"))


def read_jdbc(
    spark: SparkSession, source: SourceSettings, wanted: Sequence[str], required: Sequence[str], staged: Path
) -> DataFrame:
    """Return rows of a table, as `read_parquet` does. The table is copied into `staged`, because a second read might differ.

    Raises:
        JobRefused: The database does not answer, or a reason of `read_parquet`.
        NotShared: The tasks do not share the directory.
    """
    reader = spark.read.format("jdbc").option("url", source.url).option("dbtable", source.table)
    # The driver is named because one from spark.jars is not found by the URL.
    driver = source.driver or next((name for scheme, name in _DRIVERS.items() if source.url.startswith(scheme)), "")
    options = {"user": source.user, "password": source.password, "driver": driver, "fetchsize": _FETCHED_ROWS}
    for name, value in options.items():
        if value:
            reader = reader.option(name, value)
    url = staged.absolute().as_uri()
    try:
        write_rows(reader.load(), url)
    except SPARK_ERRORS as error:
        raise JobRefused(f"{source.place}: cannot be read: {cause_of(error)}") from error
    return _shaped(spark.read.parquet(url), source, wanted, required, F.lit(source.place))


def _shaped(table: DataFrame, source: SourceSettings, wanted: Sequence[str], required: Sequence[str], place: Column) -> DataFrame:
    names = column_names(wanted, required, source.columns, table.columns, source.place)
    types = {field.name: field.dataType for field in table.schema.fields}
    for name, its in names.items():
        _check_type(name, its, types[its], source)
    cells = {name: table[names[name]] if name in names else F.lit(None) for name in wanted}
    shown = F.to_json(F.struct(*[table[its] for its in names.values()]))
    return table.select(
        place.alias(PLACE),
        F.lit(None).cast("long").alias(LINE),
        F.left(shown, F.lit(SHOWN_CHARACTERS)).alias(TEXT),
        F.lit(None).cast("string").alias(FLAW),
        *[cleaned(cell.cast("string")).alias(name) for name, cell in cells.items()],
    )


def _check_type(name: str, its: str, found: DataType, source: SourceSettings) -> None:
    """Refuse columns that are no texts, or days for `valid_from`. A number has lost its leading zeros already."""
    if isinstance(found, _TEXTS) or (name == "valid_from" and isinstance(found, _DAYS)):
        return
    wanted = "a date or a string" if name == "valid_from" else "a string"
    raise JobRefused(f"{source.place}: the column {its!r} is {found.simpleString()}; it must be {wanted}")


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
