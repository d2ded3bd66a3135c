"""Chooses for each key the row that counts, among its good rows.

A later source counts before an earlier one, then the latest `valid_from`; rows that are not valid yet do not count. If the latest
rows contradict each other, the key is left out. It is one aggregation, which begins before the shuffle, so a key may have a
million rows.
"""

from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from notification_service.jobs.lookups.spec import FLAW, KEYS, LINE, PLACE, SOURCE, TEXT, VALID_FROM, VALUE

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
