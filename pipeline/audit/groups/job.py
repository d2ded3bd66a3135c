"""The Spark job for groups: counts, compares the reports with the counts, and the facts with the notifications."""

from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from enrichment.directory import LookupsDirectory
from pipeline.audit.finding import Deviation
from pipeline.audit.groups.judgement import Completed, Group, Judged, SeenReport, State, judge
from pipeline.audit.groups.prefixes import prefixes_of
from pipeline.audit.groups.rows import CLOSE, STATUS, UNREADABLE
from pipeline.audit.row_audit import FINDING, GROUP, Told
from pipeline.audit.rules import AuditSettings
from pipeline.audit.tables import TOLD, told_batches
from pipeline.spark.arrow_rows import Batches, Step, spark_schema

_COMPLETED = Completed._fields
_STATE = State._fields
_SEEN = tuple(name for name in SeenReport._fields if name != "states")


class GroupRecords(NamedTuple):
    """The rows of facts, group reports and notifications (rows.py).

    `read_to` says up to where the service had counted the facts of each partition before the reports were read.
    """

    facts: DataFrame
    reports: DataFrame
    notified: DataFrame
    read_to: Mapping[int, int]


def audit_groups(records: GroupRecords, told: DataFrame, settings: AuditSettings) -> DataFrame:
    """Return the findings of groups and facts, and a row for each group, as rows of the result.

    `told` is the result so far: a notification that was found to be lost is no second finding.
    """
    facts = records.facts.persist(StorageLevel.MEMORY_AND_DISK)
    reports = records.reports.persist(StorageLevel.MEMORY_AND_DISK)
    settled = facts.sparkSession.createDataFrame([*settings.settled.items()], "source_partition long, settled long")
    found = [
        _unreadable(facts.where(F.col("kind") == UNREADABLE), "person"),
        _unreadable(reports.where(F.col("group").isNull()), "flaw"),
        _groups(facts, reports.where(F.col("group").isNotNull()), settings, records.read_to),
        _doubled(facts),
        _missing(facts, records.notified.join(F.broadcast(settled), "source_partition")),
    ]
    if not LookupsDirectory(Path(settings.lookups)).versions():
        # With lookups a customer may not want to be told of a status; the facts do not say who wants what.
        found.append(_silent(facts.join(F.broadcast(settled), "source_partition"), records.notified, told))
    return reduce(DataFrame.unionAll, found)


def _unreadable(rows: DataFrame, problem: str) -> DataFrame:
    return _findings(rows, Deviation.UNREADABLE, F.col(problem))


def _doubled(facts: DataFrame) -> DataFrame:
    """Find facts that are there twice, the second without a mark."""
    unmarked = facts.where((F.col("kind") == STATUS) & ~F.col("is_possible_duplicate") & F.col("notification_id").isNotNull())
    place = F.row_number().over(Window.partitionBy("notification_id").orderBy("partition", "place"))
    again = unmarked.withColumn("which", place).where(F.col("which") > 1)
    return _findings(again, Deviation.FACT_DOUBLED, _sentence("the fact %s (%s) is there more than once", "status"), **_SOURCE)


def _missing(facts: DataFrame, notified: DataFrame) -> DataFrame:
    """Find settled notifications of groups of which there is no fact."""
    of_groups = notified.where((F.col("group") != "") & (F.col("source_offset") < F.col("settled")))
    known = facts.where(F.col("kind") == STATUS).select("notification_id", "group")
    alone = of_groups.dropDuplicates(["notification_id"]).join(known, ["notification_id", "group"], "left_anti")
    what = _sentence("the notification %s has no fact of its group %s", "group")
    return _findings(alone, Deviation.FACT_MISSING, what, **_SOURCE)


def _silent(facts: DataFrame, notified: DataFrame, told: DataFrame) -> DataFrame:
    """Find settled facts without a notification that are not explained by a lost one."""
    settled = facts.where((F.col("kind") == STATUS) & (F.col("source_offset") < F.col("settled")))
    lost = told.where((F.col("kind") == FINDING) & (F.col("deviation") == Deviation.LOST.value)).select(
        F.col("unit").alias("member"),
        F.col("partition").cast("long").alias("source_partition"),
        F.col("offset").alias("source_offset"),
    )
    alone = settled.join(notified.select("notification_id"), "notification_id", "left_anti")
    alone = alone.join(lost, ["member", "source_partition", "source_offset"], "left_anti").dropDuplicates(["notification_id"])
    what = _sentence("the fact %s (%s) has no notification, and nothing suppresses it", "status")
    return _findings(alone, Deviation.FACT_WITHOUT_NOTIFICATION, what, **_SOURCE)


_SOURCE = {"unit": "member", "partition": "source_partition", "offset": "source_offset"}


def _sentence(text: str, name: str) -> Column:
    return F.format_string(text, "notification_id", name)


def _findings(rows: DataFrame, deviation: Deviation, what: Column, **columns: str) -> DataFrame:
    """Return rows as findings. `columns` name those from which columns of the result come."""
    given: dict[str, Column] = {"kind": F.lit(FINDING), "deviation": F.lit(deviation.value), "what": what}
    given |= {name: F.col(source) for name, source in columns.items()}
    kinds = {"int32": "int", "int64": "long", "bool": "boolean"}
    return rows.select(
        *(given.get(each.name, F.lit(None)).cast(kinds.get(str(each.type), "string")).alias(each.name) for each in TOLD)
    )


def _groups(facts: DataFrame, reports: DataFrame, settings: AuditSettings, read_to: Mapping[int, int]) -> DataFrame:
    prefixes = prefixes_of(facts, settings.final_statuses).persist(StorageLevel.MEMORY_AND_DISK)
    groups = _counted(prefixes).join(_partitions(facts), "group")
    groups = groups.join(_closes(facts), "group", "left").join(_seen(reports, prefixes), "group", "full_outer")
    return groups.mapInArrow(_judging(dict(read_to)), spark_schema(TOLD))


def _counted(prefixes: DataFrame) -> DataFrame:
    """Return for each group how far it has come, and when it was complete for the first time."""
    completed = F.min(F.when(F.col("is_complete"), F.struct(*_COMPLETED)))
    return prefixes.groupBy("group").agg(
        F.max("facts").alias("facts"), F.max("members").alias("members"), completed.alias("completed")
    )


def _partitions(facts: DataFrame) -> DataFrame:
    of_groups = facts.where((F.col("kind") == STATUS) & F.col("group").isNotNull())
    return of_groups.groupBy("group").agg(F.min("partition").alias("first"), F.max("partition").alias("last"))


def _closes(facts: DataFrame) -> DataFrame:
    return facts.where(F.col("kind") == CLOSE).groupBy("group").agg(F.collect_set("person").alias("persons"))


def _seen(reports: DataFrame, prefixes: DataFrame) -> DataFrame:
    """Return the reports of each group, each with the states that have its counts."""
    report, state = reports.alias("report"), prefixes.alias("state")
    alike = reduce(
        Column.__and__,
        (F.col(f"report.{name}") == F.col(f"state.{name}") for name in ("group", "counts", "instruction_counts")),
    )
    matched = F.struct("state.place", "state.is_complete", _fits().alias("fits"))
    states = F.array_sort(F.collect_list(F.when(F.col("state.place").isNotNull(), matched))).alias("states")
    kept = [F.col(f"report.{name}").alias(name) for name in ("group", *_SEEN)]
    each = report.join(state, alike, "left").groupBy(*kept).agg(states)
    return each.groupBy("group").agg(F.collect_list(F.struct(*_SEEN, "states")).alias("reports"))


def _fits() -> Column:
    """Whether all that a report says besides its counts follows from a state."""
    missing, is_marked = F.col("report.missing"), F.col("report.missing").isNotNull()
    has_status = ~is_marked & F.col("state.is_through")
    status = F.when(has_status, F.col("report.status_if_through"))
    within = F.when(has_status, F.col("report.has_statuses")).otherwise(F.col("report.has_no_statuses"))
    same = (F.col(f"report.{name}").eqNullSafe(F.col(f"state.{name}")) for name in ("total", "control_units"))
    is_not_complete = ~(is_marked & F.col("state.is_complete"))
    marks = (F.coalesce(missing, F.lit(0)) == F.col("state.missing")) & is_not_complete
    return reduce(Column.__and__, (*same, marks, within, F.col("report.status").eqNullSafe(status)))


def _judging(read_to: dict[int, int]) -> Step:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from told_batches(told for batch in batches for row in batch.to_pylist() for told in _told(row, read_to))

    return run


def _told(row: dict[str, Any], read_to: dict[int, int]) -> Iterator[Told]:
    group = _group(row)
    reports = sorted((_report(each) for each in row["reports"] or ()), key=lambda each: each.place)
    judged = judge(group, reports, read_to)
    for deviation, what in judged.deviations:
        yield Told(FINDING, row["group"], deviation=deviation.value, what=what)
    if group is not None:
        yield _group_told(row["group"], group, reports, judged)


def _group_told(name: str, group: Group, reports: list[SeenReport], judged: Judged) -> Told:
    return Told(
        GROUP,
        name,
        group.partitions[0],
        open=int(judged.is_open),
        status=_state(group, reports),
        depth=group.members,
        behind=group.facts,
        waited_records=len(reports),
        is_compared=judged.is_judged,
    )


def _state(group: Group, reports: list[SeenReport]) -> str:
    """Return what has become of a group by its last report."""
    if not reports:
        return "open" if group.completed is None else "complete"
    last = max(reports, key=lambda each: each.number)
    return "closed" if last.closed_by is not None else "incomplete" if last.missing is not None else "complete"


def _group(row: dict[str, Any]) -> Group | None:
    if row["facts"] is None:
        return None
    completed = None if row["completed"] is None else Completed(**row["completed"])
    return Group((row["first"], row["last"]), row["facts"], row["members"], completed, frozenset(row["persons"] or ()))


def _report(row: dict[str, Any]) -> SeenReport:
    return SeenReport(**(row | {"states": tuple(State(**each) for each in row["states"])}))
