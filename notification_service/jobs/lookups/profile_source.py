"""Learns completion profiles from the archive."""

from pathlib import Path
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from notification_service.jobs.errors import JobRefused
from notification_service.jobs.lookups.profile_rows import (
    ARRIVED,
    EVENTS,
    LESSONS,
    READ,
    REFUSED,
    TIMELESS,
    WAIT,
    arrivals,
    lessons,
)
from notification_service.jobs.lookups.rows import FLAW, LINE, PLACE, TEXT
from notification_service.jobs.spark.arrow_rows import spark_schema
from notification_service.jobs.spark.counted_write import write_rows
from notification_service.jobs.spark.job_settings import LearningSettings, SourceSettings
from resequencer.clock import Instant

_COLUMNS = ("processing_entity", "process_flow", "usual_ms", "latest_ms", "late", "usual_events", "most_events")
_NEEDED = ("partition", "offset", "timestamp", "value", "headers")
_DAY_MS = 86_400_000


class Learned(NamedTuple):
    """Rows as described in `jobs.lookups.rows`, without `source`; and a remark on the records they were learned from."""

    rows: DataFrame
    remark: str


def learn_profiles(
    archived: DataFrame, source: SourceSettings, settings: LearningSettings, now: Instant, staged: Path
) -> Learned:
    """Learn from the archive's records, which are read once; the lessons are kept in `staged`.

    Raises:
        JobRefused: No record is an envelope with a timestamp.
        NotShared: The tasks do not share the directory.
    """
    is_timeless = F.col("timestamp").isNull() | (F.col("timestamp") < 0)
    recent = archived.where(is_timeless | (F.col("timestamp") >= now - source.days * _DAY_MS)).select(*_NEEDED)
    arrived = recent.mapInArrow(arrivals(settings), spark_schema(ARRIVED))
    by_unit = arrived.repartition("partition", "unit").sortWithinPartitions("partition", "unit", "offset")
    url = staged.absolute().as_uri()
    write_rows(_counted(by_unit.mapInArrow(lessons(settings), spark_schema(LESSONS))), url)
    counted = archived.sparkSession.read.parquet(url)
    total = F.sum(F.col("number") * F.col("count")).alias("total")
    totals = {row["kind"]: row["total"] for row in counted.groupBy("kind").agg(total).collect()}
    remark = _remark(source, totals.get(READ, 0), totals.get(REFUSED, 0), totals.get(TIMELESS, 0))
    return Learned(_shaped(_profiles(counted, source.least_late), source), remark)


def _remark(source: SourceSettings, read: int, refused: int, timeless: int) -> str:
    records = read + refused + timeless
    if records and not read:
        raise JobRefused(
            f"{source.place}: none of its {records:,} records of {source.days} days is an envelope with a timestamp; nothing can "
            "be learned from it, remove it from the sources of completion-profiles"
        )
    return f"records of {source.days} days: {records:,}; of these no envelopes: {refused:,}, without a timestamp: {timeless:,}"


def _counted(learned: DataFrame) -> DataFrame:
    """Count equal lessons. The result has few rows, since waits are rounded to three digits."""
    return learned.groupBy("kind", "entity", "flow", "number").agg(F.count("*").alias("count"))


def _profiles(counted: DataFrame, least_late: int) -> DataFrame:
    """Return exact profiles: equal numbers were counted before, so only few rows are sorted."""
    of_flow = Window.partitionBy("kind", "entity", "flow")
    so_far = of_flow.orderBy("number").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    of_flows = counted.where(F.col("kind").isin(WAIT, EVENTS))
    ranked = of_flows.select("*", F.sum("count").over(so_far).alias("so_far"), F.sum("count").over(of_flow).alias("all"))
    late = F.coalesce(F.sum(_of(WAIT, "count")), F.lit(0))
    usual_events = F.max(F.struct(_of(EVENTS, "count").alias("count"), _of(EVENTS, "number").alias("number")))
    return ranked.groupBy(F.col("entity").alias("processing_entity"), F.col("flow").alias("process_flow")).agg(
        _rank(1, 2).alias("usual_ms"),
        F.when(late >= least_late, _rank(999, 1_000)).alias("latest_ms"),
        late.alias("late"),
        usual_events["number"].alias("usual_events"),
        F.max(_of(EVENTS, "number")).alias("most_events"),
    )


def _of(kind: str, name: str) -> Column:
    return F.when(F.col("kind") == kind, F.col(name))


def _rank(part: int, whole: int) -> Column:
    """Return the least number that at least `part` of `whole` waits do not exceed."""
    reaches = (F.col("kind") == WAIT) & (F.col("so_far") * whole >= F.col("all") * part)
    return F.min(F.when(reaches, F.col("number")))


def _shaped(profiles: DataFrame, source: SourceSettings) -> DataFrame:
    return profiles.select(
        F.lit(source.place).alias(PLACE),
        F.lit(None).cast("long").alias(LINE),
        F.to_json(F.struct(*_COLUMNS)).alias(TEXT),
        F.lit(None).cast("string").alias(FLAW),
        *[F.col(name).cast("string").alias(name) for name in _COLUMNS],
    )
