"""Counts the rows of an audit's tables. Only the counts and the first findings reach the driver."""

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from notification_service.jobs.audit.finding import Deviation, Finding
from notification_service.jobs.audit.row_audit import ARRIVAL, FINDING, GROUP, ORDERED, PUBLISHED, UNIT, WITHOUT_OUTCOME, is_done
from notification_service.jobs.audit.summary import (
    COUNTS,
    DURATIONS_MS,
    AuditSummary,
    Bin,
    Distribution,
    FlowArrivals,
    GroupCounts,
    StatusTime,
    UsedLookups,
)
from notification_service.judgement.order_check import OrderCounts
from resequencer.order import OrderResult

_MAX_INTERVALS = 75
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_INTERVALS = (
    *(100, 200, 500, _SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 15 * _SECOND, 30 * _SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE, _HOUR, 2 * _HOUR, 6 * _HOUR, 12 * _HOUR),
)


def interval_of(span_ms: int) -> int:
    """Return a usual interval in ms that cuts `span_ms` into at most 75 pieces; for long spans, whole days."""
    found = next((each for each in _INTERVALS if span_ms <= each * _MAX_INTERVALS), None)
    return found or -(-span_ms // (_DAY * _MAX_INTERVALS)) * _DAY


EXAMPLES = 20
"""The number of findings of each deviation that reach the driver."""

_VERSIONS = 10
_GRAVITY = {each: at for at, each in enumerate(Deviation)}


def summarize(result: DataFrame) -> AuditSummary:
    """Count the result on the cluster. Only the counts and the first findings reach the driver."""
    kind, made = F.col("kind"), F.col("made_at")
    totals = result.agg(
        F.count_if(kind == UNIT).alias("units"),
        F.count_if(kind == ARRIVAL).alias("arrivals"),
        F.count_if(kind == PUBLISHED).alias("notifications"),
        F.count_if(kind == GROUP).alias("groups"),
        F.count_if(F.col("is_incomplete")).alias("incomplete"),
        F.count_if(F.col("is_late")).alias("late"),
        F.coalesce(F.sum(F.when(kind == UNIT, F.col("open"))), F.lit(0)).alias("open"),
        F.count_if((kind == PUBLISHED) & ~F.col("is_compared")).alias("not_compared"),
        F.min(made).alias("first"),
        F.max(made).alias("last"),
        *(
            F.percentile_approx(F.when(kind != GROUP, F.col(name)), [0.5, 0.99]).alias(name)
            for name in ("waited_ms", "waited_records", "depth")
        ),
    ).first()
    assert totals is not None
    found = {row.deviation: row["count"] for row in result.where(kind == FINDING).groupBy("deviation").count().collect()}
    published, arrivals = result.where(kind == PUBLISHED), result.where(kind == ARRIVAL)
    first_made_at, last_made_at = totals["first"], totals["last"]
    first, last = first_made_at or 0, last_made_at or 0
    interval_ms = interval_of(last - first + 1)
    first -= first % interval_ms
    return AuditSummary(
        totals.units,
        totals.arrivals,
        totals.notifications,
        totals.incomplete,
        totals.late,
        totals.open,
        totals.not_compared,
        {each.value: found.get(each.value, 0) for each in Deviation},
        _examples(result.where(kind == FINDING)),
        _distribution(published, "waited_ms", DURATIONS_MS, totals.waited_ms),
        _distribution(published, "waited_records", COUNTS, totals.waited_records),
        _distribution(arrivals, "depth", COUNTS, totals.depth),
        tuple(_flows(arrivals)),
        tuple(_statuses(published, first, interval_ms)),
        interval_ms,
        first_made_at,
        last_made_at,
        tuple(_lookups(published)),
        _orders(result.where(kind == ORDERED), found.get(Deviation.ORDER_WITH_TWO_OUTCOMES, 0)),
        _groups(result.where(kind == GROUP)) if totals.groups else GroupCounts(),
    )


def _examples(found: DataFrame) -> tuple[Finding, ...]:
    """Return the first findings of each deviation, the gravest deviation first."""
    order = ("unit", "partition", "offset", "what")
    place = F.row_number().over(Window.partitionBy("deviation").orderBy(*order))
    first = found.withColumn("place", place).where(F.col("place") <= EXAMPLES)
    ordered = first.select("deviation", *order).orderBy(*order).collect()
    return tuple(sorted((msgspec.convert(row.asDict(), Finding) for row in ordered), key=lambda each: _GRAVITY[each.deviation]))


def _distribution(rows: DataFrame, column: str, bounds: tuple[int, ...], percentiles: list[int] | None) -> Distribution:
    """Count the values by bin, up to the highest bin that has any."""
    value = F.col(column)
    start = F.greatest(*(F.when(value >= bound, F.lit(bound)) for bound in bounds))
    counted = {row.start: row["count"] for row in rows.where(value.isNotNull()).groupBy(start.alias("start")).count().collect()}
    bins = tuple(Bin(bound, counted.get(bound, 0)) for bound in bounds if counted and bound <= max(counted))
    return Distribution(bins, *(percentiles or ()))


def _lookups(published: DataFrame) -> list[UsedLookups]:
    rows = published.groupBy("lookups_version").count().orderBy(F.desc("count"), "lookups_version").limit(_VERSIONS)
    return [UsedLookups(row.lookups_version, row["count"]) for row in rows.collect()]


def _orders(orders: DataFrame, with_two: int) -> OrderCounts:
    counted = {row.status: row["count"] for row in orders.groupBy("status").count().collect()}
    results = {result: counted.get(result.value, 0) for result in OrderResult}
    return OrderCounts(
        given=sum(counted.values()),
        done=sum(count for result, count in results.items() if is_done(result)),
        refused=sum(count for result, count in results.items() if result.is_refusal),
        lost_by_heal=results[OrderResult.LOST_BY_HEAL],
        without_outcome=counted.get(WITHOUT_OUTCOME, 0),
        with_two=with_two,
    )


def _groups(groups: DataFrame) -> GroupCounts:
    status = F.col("status")
    counted = groups.agg(
        F.count("*").alias("groups"),
        *(F.count_if(status == name).alias(name) for name in ("open", "complete", "incomplete", "closed")),
        F.coalesce(F.sum("depth"), F.lit(0)).alias("payments"),
        F.coalesce(F.sum("waited_records"), F.lit(0)).alias("reports"),
        F.coalesce(F.sum("open"), F.lit(0)).alias("awaited"),
        F.count_if(~F.col("is_compared")).alias("not_judged"),
    ).first()
    return GroupCounts() if counted is None else GroupCounts(**counted.asDict())


def _flows(arrivals: DataFrame) -> list[FlowArrivals]:
    overtaken = F.when(F.col("depth") > 0, F.col("depth"))
    rows = (
        arrivals.groupBy("flow")
        .agg(
            F.count("*").alias("arrivals"),
            F.count(overtaken).alias("overtaken"),
            F.percentile_approx(overtaken, [0.5, 0.999]).alias("depths"),
            F.percentile_approx("behind_ms", [0.5, 0.999]).alias("times"),
        )
        .orderBy(F.desc("arrivals"), "flow")
        .limit(50)
        .collect()
    )
    none = [0, 0]
    return [
        FlowArrivals(row.flow, row.arrivals, row.overtaken, *(row.depths or none), *(row.times or [None, None])) for row in rows
    ]


def _statuses(published: DataFrame, first: int, interval_ms: int) -> list[StatusTime]:
    start = (F.floor((F.col("made_at") - F.lit(first)) / F.lit(interval_ms)) * interval_ms + F.lit(first)).cast("long")
    known = published.where(F.col("made_at").isNotNull())
    rows = known.groupBy(F.coalesce("status", F.lit("?")).alias("status"), start.alias("start")).count()
    return [StatusTime(row.status, row.start, row["count"]) for row in rows.orderBy("status", "start").collect()]
