"""The Spark job for groups: counts, compares the reports with the counts, and the facts with the notifications."""

from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from guardian.headers import MEMBER
from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.groups.judgement import Completed, Group, Judged, SeenReport, State, judge
from notification_service.jobs.audit.groups.prefixes import prefixes_of
from notification_service.jobs.audit.groups.rows import CLOSE, STATUS, UNREADABLE
from notification_service.jobs.audit.row_audit import FINDING, GROUP, ResultRow
from notification_service.jobs.audit.rules import AuditSettings
from notification_service.jobs.audit.tables import RESULT_ROW, result_batches
from notification_service.jobs.spark.counted_write import Batches, Step, spark_schema
from notification_service.lookups.directory import LookupsDirectory

_KINDS = {"int32": "int", "int64": "long", "bool": "boolean"}
_SOURCE = (MEMBER, "source_partition", "source_offset")
_PLACED = dict(zip(("unit", "partition", "offset"), _SOURCE, strict=True))

_MISSING = "the notification %s has no fact of its group %s"
_SILENT = "the fact %s (%s) has no notification, and nothing suppresses it"
_DOUBLED = "the fact %s (%s) is there more than once"


def pair_findings(facts: DataFrame, notified: DataFrame, result: DataFrame, settings: AuditSettings) -> DataFrame:
    """Return the findings: facts that are missing, doubled, or without a notification that is not lost by the result so far."""
    found = _found(_by_id(facts, notified, settings))
    lost = result.where((F.col("kind") == FINDING) & (F.col("deviation") == Deviation.LOST.value)).select(
        F.col("unit").alias(MEMBER),
        F.col("partition").cast("long").alias("source_partition"),
        F.col("offset").alias("source_offset"),
        F.lit(Deviation.FACT_WITHOUT_NOTIFICATION.value).alias("deviation"),
    )
    explained = found.join(lost, [*_SOURCE, "deviation"], "left_anti")
    return findings(explained, F.col("deviation"), F.col("what"), **_PLACED)


def findings(rows: DataFrame, deviation: Column, what: Column, **columns: str) -> DataFrame:
    """Return rows as findings. `columns` name those from which other columns of the result come."""
    given: dict[str, Column] = {"kind": F.lit(FINDING), "deviation": deviation, "what": what}
    given |= {name: F.col(source) for name, source in columns.items()}
    cells = ((each.name, given.get(each.name, F.lit(None)), _KINDS.get(str(each.type), "string")) for each in RESULT_ROW)
    return rows.select(*(cell.cast(kind).alias(name) for name, cell, kind in cells))


def _by_id(facts: DataFrame, notified: DataFrame, settings: AuditSettings) -> DataFrame:
    """Return for each id its facts and its notifications. Only what is settled has to be complete."""
    columns = ("notification_id", "group", *_SOURCE, "status", "is_possible_duplicate")
    stated = facts.where((F.col("kind") == STATUS) & F.col("notification_id").isNotNull()).select(*columns)
    stated = stated.withColumn("is_fact", F.lit(True))
    of_notified = {"status": F.lit(None).cast("string"), "is_possible_duplicate": F.lit(False), "is_fact": F.lit(False)}
    both = stated.unionByName(notified.withColumns(of_notified)).withColumn("is_settled", _is_settled(settings))
    is_fact, one = F.col("is_fact"), F.struct(*_SOURCE, "status", "group", "is_settled")
    return (
        both.groupBy("notification_id")
        .agg(
            F.count_if(~is_fact).alias("notifications"),
            F.count_if(is_fact & ~F.col("is_possible_duplicate")).alias("unmarked"),
            F.collect_set(F.when(is_fact, F.col("group"))).alias("groups"),
            F.min(F.when(is_fact, one)).alias("fact"),
            F.min(F.when(~is_fact & (F.col("group") != ""), one)).alias("notified"),
        )
        .withColumn("may_be_silent", F.lit(_may_be_silent(settings)))
    )


def _is_settled(settings: AuditSettings) -> Column:
    of_partitions = (
        (F.col("source_partition") == number) & (F.col("source_offset") < offset) for number, offset in settings.settled.items()
    )
    return F.coalesce(reduce(Column.__or__, of_partitions, F.lit(False)), F.lit(False))


def _may_be_silent(settings: AuditSettings) -> bool:
    """Whether a status may have no notification. With lookups a customer may not want it, and the fact does not say so."""
    return bool(LookupsDirectory(Path(settings.lookups)).versions())


def _found(by_id: DataFrame) -> DataFrame:
    is_missing = F.col("notified.is_settled") & ~F.array_contains("groups", F.col("notified.group"))
    is_silent = F.col("fact.is_settled") & (F.col("notifications") == 0) & ~F.col("may_be_silent")
    each = F.array_compact(
        F.array(
            F.when(is_missing, _finding(Deviation.FACT_MISSING, _MISSING, "notified", "group")),
            F.when(is_silent, _finding(Deviation.FACT_WITHOUT_NOTIFICATION, _SILENT, "fact", "status")),
            F.when(F.col("unmarked") > 1, _finding(Deviation.FACT_DOUBLED, _DOUBLED, "fact", "status")),
        )
    )
    return by_id.select(F.explode(each).alias("found")).select("found.*")


def _finding(deviation: Deviation, text: str, of: str, named: str) -> Column:
    what = F.format_string(text, F.col("notification_id"), F.col(f"{of}.{named}"))
    source = (F.col(f"{of}.{name}").alias(name) for name in _SOURCE)
    return F.struct(F.lit(deviation.value).alias("deviation"), what.alias("what"), *source)


_COMPLETED = Completed._fields
_SEEN = tuple(name for name in SeenReport._fields if name != "states")


class GroupRecords(NamedTuple):
    """The rows of facts, group reports and notifications (rows.py).

    `read_to` says up to where the service had counted the facts of each partition before the reports were read.
    """

    facts: DataFrame
    reports: DataFrame
    notified: DataFrame
    read_to: Mapping[int, int]


def audit_groups(records: GroupRecords, result: DataFrame, settings: AuditSettings) -> DataFrame:
    """Return the findings of groups and facts, and a row for each group, as rows of the result.

    `result` is the result so far: a notification that was found to be lost is no second finding.
    """
    facts = records.facts.persist(StorageLevel.MEMORY_AND_DISK)
    reports = records.reports.persist(StorageLevel.MEMORY_AND_DISK)
    found = [
        findings(facts.where(F.col("kind") == UNREADABLE), F.lit(Deviation.UNREADABLE.value), F.col("person")),
        findings(reports.where(F.col("group").isNull()), F.lit(Deviation.UNREADABLE.value), F.col("flaw")),
        _groups(facts, reports.where(F.col("group").isNotNull()), settings, records.read_to),
        pair_findings(facts, records.notified, result, settings),
    ]
    return reduce(DataFrame.unionAll, found)


def _groups(facts: DataFrame, reports: DataFrame, settings: AuditSettings, read_to: Mapping[int, int]) -> DataFrame:
    prefixes = prefixes_of(facts, settings.final_statuses).persist(StorageLevel.MEMORY_AND_DISK)
    groups = _counted(prefixes).join(_closes(facts), "group", "left").join(_seen(reports, prefixes), "group", "full_outer")
    return groups.mapInArrow(_judging(dict(read_to)), spark_schema(RESULT_ROW))


def _counted(prefixes: DataFrame) -> DataFrame:
    """Return for each group how far it has come, and when it was complete for the first time."""
    return prefixes.groupBy("group").agg(
        F.max("facts").alias("facts"),
        F.max("members").alias("members"),
        F.min("partition").alias("first"),
        F.max("last_partition").alias("last"),
        F.min(F.when(F.col("is_complete"), F.struct(*_COMPLETED))).alias("completed"),
    )


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
        yield from result_batches(each for batch in batches for row in batch.to_pylist() for each in _judged_rows(row, read_to))

    return run


def _judged_rows(row: dict[str, Any], read_to: dict[int, int]) -> Iterator[ResultRow]:
    group = _group(row)
    reports = sorted((_report(each) for each in row["reports"] or ()), key=lambda each: each.place)
    judged = judge(group, reports, read_to)
    for deviation, what in judged.deviations:
        yield ResultRow(FINDING, row["group"], deviation=deviation.value, what=what)
    if group is not None:
        yield _group_row(row["group"], group, reports, judged)


def _group_row(name: str, group: Group, reports: list[SeenReport], judged: Judged) -> ResultRow:
    return ResultRow(
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
