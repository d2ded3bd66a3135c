"""Counts the facts of each group with Spark: what was known of the group after each fact.

All facts of a group are brought together once. Windows over the facts of a payment find what each fact changes, those over one
count its running number and sum, and those over the group the running totals.
"""

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from guardian.headers import MEMBER
from notification_service.jobs.audit.groups.judgement import HEX_DIGITS, NO_SUM, SEPARATOR
from notification_service.jobs.audit.groups.rows import STATUS

_MAX_INSTRUCTIONS = 100
"""Of a message with more payment informations at any time, reports do not name them any more."""

_ALL, _ONE = "message", "instruction"
"""The kinds of counts: of the whole message, and of one payment information."""

_UNITS = "decimal(38,0)"


def prefixes_of(facts: DataFrame, final_statuses: Iterable[str]) -> DataFrame:
    """Return a row for each fact that changed what is known of its group, by group and place.

    `counts` and `instruction_counts` are fingerprints (shares.py), the latter 0 where reports name no payment informations.
    `members` payments are known, `final` of them have a final status; `units` is the sum of the known amounts. `total` and
    `control_units` are what the message says first. `is_through`: all payments are there and final. `is_complete`: and nothing
    contradicts that. `missing` is how many have no final status as far as is known.
    """
    of_groups = facts.where((F.col("kind") == STATUS) & F.col("group").isNotNull()).repartition("group")
    return _states(_changes(_counted(of_groups), tuple(final_statuses)))


def _counted(facts: DataFrame) -> DataFrame:
    """Leave out what is late, unless it is the first of its payment; add what the payment was before, and its amount so far."""
    payment = Window.partitionBy("group", MEMBER).orderBy("place")
    so_far = payment.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    first = F.row_number().over(payment) == 1
    counted = facts.withColumn("is_first", first).where(F.col("is_first") | ~F.col("is_late"))
    known = counted.withColumn("units", F.last(F.col("units").cast(_UNITS), ignorenulls=True).over(so_far))
    known = known.withColumn("instruction", F.last("instruction", ignorenulls=True).over(so_far))
    before = {f"{name}_before": F.lag(name).over(payment) for name in ("status", "units", "instruction")}
    return known.withColumns(before)


def _changes(counted: DataFrame, finals: tuple[str, ...]) -> DataFrame:
    """Return for each fact by how much the fingerprints and the totals change."""
    is_known, step = F.col("status_before").isNotNull(), F.struct
    steps = F.array_compact(
        F.array(
            step(F.lit(_ALL).alias("of"), F.lit("").alias("within"), "status", F.lit(1).alias("by"), "units"),
            F.when(is_known, _removed(_ALL, F.lit(""))),
            F.when(
                F.col("instruction").isNotNull(),
                step(F.lit(_ONE).alias("of"), F.col("instruction").alias("within"), "status", F.lit(1).alias("by"), "units"),
            ),
            F.when(is_known & F.col("instruction_before").isNotNull(), _removed(_ONE, F.col("instruction_before"))),
        )
    )
    is_final, was_final = (F.coalesce(F.col(name).isin(*finals), F.lit(False)) for name in ("status", "status_before"))
    by = {
        "by_members": F.when(is_known, 0).otherwise(1),
        "by_final": is_final.cast("int") - was_final.cast("int"),
        "by_unknown": F.col("units").isNull().cast("int") - (is_known & F.col("units_before").isNull()).cast("int"),
        "by_units": F.coalesce("units", F.lit(0)) - F.coalesce("units_before", F.lit(0)),
    }
    stated = ("total", "control_units")
    each = counted.withColumns(by).select(
        "group", "partition", "place", *stated, *by, F.posexplode(steps).alias("number", "step")
    )
    flat = each.select("group", "partition", "place", *stated, *by, "number", "step.*")
    return (
        _shared(flat)
        .groupBy("group", "partition", "place")
        .agg(
            *(F.first(name).alias(name) for name in (*stated, *by)),
            *(F.sum(F.when(F.col("of") == of, F.col("by_share")).otherwise(0)).alias(f"by_{of}") for of in (_ALL, _ONE)),
            F.sum("by_instructions").alias("by_instructions"),
        )
    )


def _removed(of: str, within: Column) -> Column:
    """Return the step by which a payment leaves the count in which it was."""
    was, units = F.col("status_before").alias("status"), F.col("units_before").alias("units")
    return F.struct(F.lit(of).alias("of"), within.alias("within"), was, F.lit(-1).alias("by"), units)


def _shared(steps: DataFrame) -> DataFrame:
    """Add by how much each step changes its share of the fingerprint, and the number of payment informations with payments."""
    order = ("place", "number")
    of_count = Window.partitionBy("group", "of", "within", "status").orderBy(*order)
    of_instruction = Window.partitionBy("group", "of", "within").orderBy(*order)
    run = {
        "count": F.sum("by").over(_so_far(of_count)),
        "sum": F.sum(F.col("by") * F.coalesce("units", F.lit(0))).over(_so_far(of_count)),
        "unknown": F.sum(F.col("by") * F.col("units").isNull().cast("int")).over(_so_far(of_count)),
        "within_it": F.sum("by").over(_so_far(of_instruction)),
    }
    total = F.when(F.col("of") == _ONE, "").when(F.col("unknown") > 0, NO_SUM).otherwise(F.col("sum").cast(_UNITS).cast("string"))
    text = F.concat_ws(SEPARATOR, "within", "status", F.col("count").cast("string"), total)
    digits = F.substring(F.sha2(text, 256), 1, HEX_DIGITS)
    share = F.when(F.col("count") > 0, F.conv(digits, 16, 10).cast("long")).otherwise(F.lit(0))
    has_any = ((F.col("of") == _ONE) & (F.col("within_it") > 0)).cast("int")
    now = steps.withColumns(run).withColumns({"share": share, "has_any": has_any})
    return now.withColumns(
        {
            "by_share": F.col("share") - F.coalesce(F.lag("share").over(of_count), F.lit(0)),
            "by_instructions": F.col("has_any") - F.coalesce(F.lag("has_any").over(of_instruction), F.lit(0)),
        }
    )


def _states(changes: DataFrame) -> DataFrame:
    """Run the changes up, and keep the first of equal states that follow each other."""
    group = Window.partitionBy("group").orderBy("place")
    run = {
        "members": F.sum("by_members").over(_so_far(group)),
        "final": F.sum("by_final").over(_so_far(group)),
        "unknown": F.sum("by_unknown").over(_so_far(group)),
        "units": F.sum("by_units").over(_so_far(group)).cast(_UNITS),
        "counts": F.sum(f"by_{_ALL}").over(_so_far(group)),
        "instruction_counts": F.sum(f"by_{_ONE}").over(_so_far(group)),
        "instructions": F.sum("by_instructions").over(_so_far(group)),
        "first_total": F.first("total", ignorenulls=True).over(_so_far(group)),
        "first_control": F.first("control_units", ignorenulls=True).over(_so_far(group)),
        "facts": F.count("*").over(_so_far(group)),
        "last_partition": F.max("partition").over(_so_far(group)),
    }
    ran = changes.withColumns(run)
    other = {
        "other_total": F.max(_differs("total", "first_total")).over(_so_far(group)),
        "other_control": F.max(_differs("control_units", "first_control")).over(_so_far(group)),
        "is_many": F.max((F.col("instructions") > _MAX_INSTRUCTIONS).cast("int")).over(_so_far(group)),
    }
    total, members = F.col("first_total"), F.col("members")
    is_through = total.isNotNull() & (F.col("final") == members) & (members == total) & (F.col("other_total") == 0)
    control = F.col("first_control")
    adds_up = control.isNull() | ((F.col("unknown") == 0) & (control == F.col("units").cast("string")))
    names_instructions = (F.col("is_many") == 0) & (F.col("instructions") > 1)
    states = ran.withColumns(other).select(
        "group",
        "partition",
        "last_partition",
        "place",
        "facts",
        "counts",
        F.when(names_instructions, F.col("instruction_counts")).otherwise(F.lit(0)).alias("instruction_counts"),
        "members",
        "final",
        F.col("units").cast("string").alias("units"),
        total.alias("total"),
        control.alias("control_units"),
        is_through.alias("is_through"),
        (is_through & adds_up & (F.col("other_control") == 0)).alias("is_complete"),
        (F.greatest(F.coalesce(total, F.lit(0)), members) - F.col("final")).alias("missing"),
    )
    kept = ("last_partition", "counts", "instruction_counts", "total", "control_units", "is_through", "is_complete")
    now, before = F.struct(*kept), F.lag(F.struct(*kept)).over(group)
    return states.withColumn("is_same", now.eqNullSafe(before)).where(~F.col("is_same")).drop("is_same")


def _differs(name: str, first: str) -> Column:
    return (F.col(name).isNotNull() & (F.col(name) != F.col(first))).cast("int")


def _so_far(window: "Window") -> "Window":
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
