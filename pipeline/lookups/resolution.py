"""Of the good rows of a key, the one that counts.

A later source counts before an earlier one, then the latest day from which a row is valid; rows that are not valid yet do not
count. Where the latest contradict each other, the key is refused. Everything is one aggregation that begins before the rows are
shuffled: a key with a million rows is no burden.
"""

from datetime import date

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.lookups.rows import FLAW, LINE, PLACE, SOURCE, TEXT
from pipeline.lookups.spec import KEYS, VALID_FROM, VALUE

KEY, ROWS, IS_CONTRADICTORY = "key", "rows", "is_contradictory"
_ALWAYS = -(10**9)


def resolve(checked: DataFrame, today: date) -> DataFrame:
    """`key`, `value`, how many `rows` the key had, and whether it `is_contradictory`."""
    source, day = F.col(SOURCE), _day()
    latest = F.max(F.struct(source, day, VALUE))
    # The same source and day, but the first value instead of the last.
    counter = F.min(F.struct(-source, -day, F.col(VALUE)))
    found = _of_today(checked, today).groupBy(KEY).agg(latest.alias("latest"), counter.alias("counter"), F.count("*").alias(ROWS))
    contradiction = F.col(f"latest.{VALUE}") != F.col(f"counter.{VALUE}")
    return found.select(KEY, F.col(f"latest.{VALUE}").alias(VALUE), ROWS, contradiction.alias(IS_CONTRADICTORY))


def contradictions(checked: DataFrame, resolved: DataFrame, today: date) -> DataFrame:
    """The rows of contradictory keys, with that as their flaw."""
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
