"""The description of a lookup: its columns, and how a row becomes keys and a value or is refused.

The rules are column expressions. A user's own lookup is made of the same functions.

Columns: `source` (its number), `place` (the file or table), `line` (from 1, null where there are none), `text` (the beginning
of the row as read, for people), `flaw` (why it cannot be used, null if it can), and the lookup's own columns as texts, null where
empty.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused
from notification_service.lookups.shapes import LONGEST_KEY_BYTES, SEPARATOR

SOURCE, PLACE, LINE, TEXT, FLAW = "source", "place", "line", "text", "flaw"
SHOWN_CHARACTERS = 1_000
ABSENT = ""
_LIKE, _ALMOST_THE_SAME = 0.6, 0.8
"""Similarity of two names as difflib measures it: `status` and `statuses` have 0.86."""


def column_names(
    wanted: Sequence[str], required: Iterable[str], renamed: Mapping[str, str], header: Sequence[str], place: str
) -> dict[str, str]:
    """Return the source's column for each wanted one; columns that are absent and not required are left out.

    A column renamed to `ABSENT` counts as absent, whatever the source has.

    Raises:
        JobRefused: A name is repeated, a required column is missing, a column is renamed that is not wanted, or an absent column
            is almost the same as one that is not wanted.
    """
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise JobRefused(f"{place}: the column {doubled[0]!r} occurs twice; give each column a name of its own")
    strange = sorted(renamed.keys() - set(wanted))
    if strange:
        raise JobRefused(f"{place}: columns renames {strange[0]!r}, which is not one of {', '.join(wanted)}")
    found = {name: renamed.get(name, name) for name in wanted}
    has = ", ".join(map(repr, header))[:SHOWN_CHARACTERS]
    for name in wanted:
        if found[name] not in header and (name in required or renamed.get(name, ABSENT) != ABSENT):
            near = _find_near(found[name], header, _LIKE)
            meant = f"; did you mean {near!r}?" if near else ""
            raise JobRefused(f"{place}: the column {found[name]!r} is missing; the source has {has}{meant}")
    not_owned = [name for name in header if name not in found.values()]
    for name in wanted:
        near = _find_near(name, not_owned, _ALMOST_THE_SAME) if name not in header and name not in renamed else None
        if near:
            raise JobRefused(
                f"{place}: the column {name!r} is missing, but {near!r} has almost the same name; write {name} = {near!r} under "
                f'columns if that is the column, {name} = "" if it is not'
            )
    return {name: its for name, its in found.items() if its in header}


def _find_near(name: str, header: Iterable[str], cutoff: float) -> str | None:
    """Return the most similar name, ignoring case."""
    by_letters = {each.casefold(): each for each in header}
    near = get_close_matches(name.casefold(), by_letters, n=1, cutoff=cutoff)
    return by_letters[near[0]] if near else None


def cleaned(column: Column) -> Column:
    """Return the text without surrounding white space; null if nothing is left."""
    trimmed = F.trim(column)
    return F.when(trimmed != "", trimmed)


def masked(text: Column, within: str = "") -> Column:
    """Replace digits by asterisks, so that no account number is shown; with `within` only digits before its last match."""
    return F.regexp_replace(text, rf"\p{{Nd}}(?=[\s\S]*{within})", "*")


def first_flaw(*flaws: tuple[Column, str | Column]) -> Column:
    """Return the text of the first condition that holds; null if none does."""
    return F.coalesce(*[F.when(condition, F.lit(text) if isinstance(text, str) else text) for condition, text in flaws])


def said(name: str) -> Column:
    """Return a column's name and value, cut, for the text of a flaw."""
    return F.concat(F.lit(f"{name} '"), F.coalesce(F.left(F.col(name), F.lit(60)), F.lit("")), F.lit("' "))


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
