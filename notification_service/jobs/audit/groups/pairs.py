"""Compares facts with notifications: both have the same ids."""

from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from guardian.headers import MEMBER
from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.groups.rows import STATUS
from notification_service.jobs.audit.row_audit import FINDING
from notification_service.jobs.audit.rules import AuditSettings
from notification_service.jobs.audit.tables import TOLD
from notification_service.lookups.directory import LookupsDirectory

_KINDS = {"int32": "int", "int64": "long", "bool": "boolean"}
_SOURCE = (MEMBER, "source_partition", "source_offset")
_PLACED = dict(zip(("unit", "partition", "offset"), _SOURCE, strict=True))

_MISSING = "the notification %s has no fact of its group %s"
_SILENT = "the fact %s (%s) has no notification, and nothing suppresses it"
_DOUBLED = "the fact %s (%s) is there more than once"


def pair_findings(facts: DataFrame, notified: DataFrame, told: DataFrame, settings: AuditSettings) -> DataFrame:
    """Return the findings: facts that are missing, doubled, or without a notification that is not lost by the result so far."""
    found = _found(_by_id(facts, notified, settings))
    lost = told.where((F.col("kind") == FINDING) & (F.col("deviation") == Deviation.LOST.value)).select(
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
    cells = ((each.name, given.get(each.name, F.lit(None)), _KINDS.get(str(each.type), "string")) for each in TOLD)
    return rows.select(*(cell.cast(kind).alias(name) for name, cell, kind in cells))


def _by_id(facts: DataFrame, notified: DataFrame, settings: AuditSettings) -> DataFrame:
    """Return for each id its facts and its notifications. Only what is settled has to be complete."""
    columns = ("notification_id", "group", *_SOURCE, "status", "is_possible_duplicate")
    said = facts.where((F.col("kind") == STATUS) & F.col("notification_id").isNotNull()).select(*columns)
    said = said.withColumn("is_fact", F.lit(True))
    of_notified = {"status": F.lit(None).cast("string"), "is_possible_duplicate": F.lit(False), "is_fact": F.lit(False)}
    both = said.unionByName(notified.withColumns(of_notified)).withColumn("is_settled", _is_settled(settings))
    is_fact, one = F.col("is_fact"), F.struct(*_SOURCE, "status", "group", "is_settled")
    return (
        both.groupBy("notification_id")
        .agg(
            F.count_if(~is_fact).alias("told"),
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
    is_silent = F.col("fact.is_settled") & (F.col("told") == 0) & ~F.col("may_be_silent")
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
