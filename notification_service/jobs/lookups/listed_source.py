"""Reads sources that are short lists: ISO code sets, the project's own codes, the registry of banks."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.rows import FLAW, LINE, PLACE, TEXT, cleaned
from notification_service.jobs.spark.job_settings import SourceSettings
from notification_service.payments.iso20022.codes import STATUS_REASONS

Row = dict[str, str | None]


def read_listed(spark: SparkSession, source: SourceSettings, wanted: Sequence[str]) -> DataFrame:
    """Return rows as described in `notification_service.jobs.lookups.rows`, without `source`.

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
