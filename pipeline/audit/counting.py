"""Counts the rows of an audit's tables. Only the counts and the first findings reach the driver."""

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.audit.finding import Deviation, Finding
from pipeline.audit.intervals import interval_of
from pipeline.audit.job import findings
from pipeline.audit.row_audit import ARRIVAL, FINDING, LET_OUT, UNIT
from pipeline.audit.summary import AuditSummary, Bin, FlowLateness, StatusTime

EXAMPLES = 100
_BOUNDS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)


def summarize(result: DataFrame) -> AuditSummary:
    """Count the result on the cluster. Only the counts and the first findings reach the driver."""
    kind, made = F.col("kind"), F.col("made_at")
    totals = result.agg(
        F.count_if(kind == UNIT).alias("units"),
        F.count_if(kind == ARRIVAL).alias("arrivals"),
        F.count_if(kind == LET_OUT).alias("notifications"),
        F.count_if(F.col("is_incomplete")).alias("incomplete"),
        F.count_if(F.col("is_late")).alias("late"),
        F.coalesce(F.sum("open"), F.lit(0)).alias("open"),
        F.count_if(~F.col("is_compared")).alias("not_compared"),
        F.min(made).alias("first"),
        F.max(made).alias("last"),
    ).first()
    assert totals is not None
    found = {row.deviation: row["count"] for row in result.where(kind == FINDING).groupBy("deviation").count().collect()}
    let_out, arrivals = result.where(kind == LET_OUT), result.where(kind == ARRIVAL)
    first, last = totals["first"] or 0, totals["last"] or 0
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
        tuple(_finding(row.asDict()) for row in findings(result).limit(EXAMPLES).collect()),
        _bins(let_out, "waited_ms"),
        _bins(let_out, "waited_records"),
        _bins(arrivals, "depth"),
        tuple(_flows(arrivals)),
        tuple(_statuses(let_out, first, interval_ms)),
        interval_ms,
    )


def _finding(row: dict[str, object]) -> Finding:
    return msgspec.convert(row, Finding)


def _bins(rows: DataFrame, column: str) -> tuple[Bin, ...]:
    """Count the values by bin, up to the highest bin that has any."""
    value = F.col(column)
    start = F.greatest(*(F.when(value >= bound, F.lit(bound)) for bound in _BOUNDS))
    counted = {row.start: row["count"] for row in rows.where(value.isNotNull()).groupBy(start.alias("start")).count().collect()}
    return tuple(Bin(bound, counted.get(bound, 0)) for bound in _BOUNDS if counted and bound <= max(counted))


def _flows(arrivals: DataFrame) -> list[FlowLateness]:
    late = F.when(F.col("depth") > 0, F.col("depth"))
    rows = (
        arrivals.groupBy("flow")
        .agg(
            F.count("*").alias("arrivals"),
            F.count(late).alias("late"),
            F.percentile_approx(late, [0.5, 0.999]).alias("depths"),
            F.percentile_approx("late_ms", [0.5, 0.999]).alias("times"),
        )
        .orderBy(F.desc("arrivals"), "flow")
        .limit(50)
        .collect()
    )
    none = [0, 0]
    return [FlowLateness(row.flow, row.arrivals, row.late, *(row.depths or none), *(row.times or [None, None])) for row in rows]


def _statuses(let_out: DataFrame, first: int, interval_ms: int) -> list[StatusTime]:
    start = (F.floor((F.col("made_at") - F.lit(first)) / F.lit(interval_ms)) * interval_ms + F.lit(first)).cast("long")
    known = let_out.where(F.col("made_at").isNotNull())
    rows = known.groupBy(F.coalesce("status", F.lit("?")).alias("status"), start.alias("start")).count()
    return [StatusTime(row.status, row.start, row["count"]) for row in rows.orderBy("status", "start").collect()]
