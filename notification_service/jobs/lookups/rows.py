"""The form that the rows of all sources have, whatever their format.

Columns: `source` (its number), `place` (the file or table), `line` (from 1, null where there are none), `text` (the beginning
of the row as read, for people), `flaw` (why it cannot be used, null if it can), and the lookup's own columns as texts, null where
empty.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

from pyspark.sql import Column
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused

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
