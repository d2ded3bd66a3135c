"""The audit of groups on Spark: it counts the facts of each group, and compares the reports with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.planted.groups import FAULTS, plant_all
from harness.spark.audited_service import lines_of, write_lines
from harness.spark.grouped_service import GroupedService
from harness.spark.random_groups import RandomGroups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_nothing_is_found_where_facts_of_any_order_were_counted_right(spark: SparkSession, tmp_path: Path) -> None:
    groups = RandomGroups(tmp_path, seed=1)
    groups.live(groups=30, facts=400)
    rows = groups.audited(spark)
    assert [(each.deviation, each.unit, each.what) for each in rows if each.kind == "finding"] == []
    headers = [line["headers"] for line in lines_of(groups.report_lines)]
    assert sum(each.waited_records or 0 for each in rows) == len(headers) > 100
    assert {each.status for each in rows} == {"complete", "incomplete", "closed"}
    assert any(int(each["group-report"]) > 3 and "group-status" in each for each in headers)


def test_all_planted_faults_are_found_and_named_and_nothing_else_is(spark: SparkSession, tmp_path: Path) -> None:
    service = GroupedService(tmp_path)
    service.live_and_count(units=160, losses=0, late=0.02)
    planted = plant_all(service, FAULTS)
    assert [(deviation, unit) for deviation, unit, _ in service.of_groups(spark)] == planted


def test_the_whole_audit_names_a_lost_notification_once_and_counts_the_groups(spark: SparkSession, tmp_path: Path) -> None:
    service = GroupedService(tmp_path, "STRICT_SEQUENCE")
    service.live_and_count(units=30, partitions=2, losses=0.02)
    reports, rows = lines_of(service.report_lines), lines_of(service.notifications)
    write_lines(service.report_lines, reports[1:])
    write_lines(service.notifications, rows[1:])
    summary = service.summarized(spark)
    assert {name: count for name, count in summary.counts.items() if count} == {"lost": 1, "group report missing": 1}
    assert summary.examples[-1].unit == reports[0]["headers"]["group-id"]
    groups = summary.groups
    assert groups.reports == len(reports) - 1
    assert groups.payments == len(
        {line["value"]["unit"] for line in lines_of(service.fact_lines) if "group-id" in line["headers"]}
    )
    assert groups.groups == groups.open + groups.complete + groups.incomplete + groups.closed
    assert (groups.awaited, groups.not_judged) == (0, 0)
