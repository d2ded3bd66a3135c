"""The description of a lookup: its columns, and how a row becomes keys and a value or is refused.

The rules are column expressions. A user's own lookup is made of the same functions.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from notification_service.jobs.lookups.rows import FLAW, LINE, PLACE, SOURCE, TEXT, first_flaw, said
from notification_service.lookups.shapes import LONGEST_KEY_BYTES, SEPARATOR

KEYS, VALUE, VALID_FROM = "keys", "value", "valid_from"
_DAY = r"^\d{4}-\d{1,2}-\d{1,2}([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?(Z|[+-]\d{2}:?\d{2})?)?$"
"""A day, with an optional time as databases write it; `to_date` ignores everything behind a T or a blank."""
Flaw = tuple[Column, str | Column]


class LookupSpec(NamedTuple):
    """`required` columns must be in a source, `optional` ones may be. The quarantine shows no digit of an `is_personal` lookup,
    unless the quarantine is plain.

    `keyed` gets the rows, and the reasons as rows with `code`, or None if no reasons are built. It adds the columns `keys` (an
    array: a row may have several), `value`, `valid_from` (days since 1970, null if none) and `flaw`, by calling `finished`.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    keyed: Callable[[DataFrame, DataFrame | None], DataFrame]
    is_personal: bool = True

    @property
    def columns(self) -> tuple[str, ...]:
        return self.required + self.optional


def finished(rows: DataFrame, flaws: Sequence[Flaw], keys: Column, value: Column, day: Column | None = None) -> DataFrame:
    """Add keys, value, day and flaw to the rows, with the checks that all lookups share."""
    cells = [name for name in rows.columns if name not in (SOURCE, PLACE, LINE, TEXT, FLAW)]
    no_day: list[Flaw] = []
    if day is not None:
        is_day = day.rlike(_DAY) & F.to_date(day).isNotNull()
        no_day = [(day.isNotNull() & ~is_day, F.concat(said(VALID_FROM), F.lit("is no day (2026-03-28)")))]
    common: list[Flaw] = [
        (F.size(KEYS) == 0, "no key"),
        (F.exists(KEYS, lambda key: F.octet_length(key) > LONGEST_KEY_BYTES), f"a key of more than {LONGEST_KEY_BYTES} bytes"),
        (F.concat_ws("", *cells).rlike(r"[\x00-\x1f]"), "a control character"),
    ]
    keyed = rows.withColumn(KEYS, keys)
    flaw = F.coalesce(F.col(FLAW), first_flaw(*flaws, *no_day, *common))
    days = F.lit(None).cast("int") if day is None else F.unix_date(F.to_date(day))
    return keyed.withColumns({FLAW: flaw, VALUE: value, VALID_FROM: days})


def value_of(*columns: str | Column) -> Column:
    """Return the values as the service reads them: texts and nulls in this order."""
    return F.to_json(F.array(*[F.col(each) if isinstance(each, str) else each for each in columns]))


def key_of(*parts: str | Column) -> Column:
    """Join the parts to a key; a null part counts as empty."""
    texts = [F.coalesce(F.col(each), F.lit("")) if isinstance(each, str) else each for each in parts]
    return F.concat_ws(SEPARATOR, *texts)


def missing(name: str) -> Flaw:
    """Return the flaw of a row without a value in this column."""
    return F.col(name).isNull(), f"{name} is empty"
