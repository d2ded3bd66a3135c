"""The audit on Spark: it splits files, gathers the records of each unit, and writes tables of findings and the summary."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.planted.output import FAULTS
from harness.spark.audited_service import AuditedService
from harness.spark.operator import Operator

import notification_service.jobs.audit.lines
from notification_service.jobs.audit.finding import Deviation
from notification_service.jobs.audit.summary import UsedLookups
from resequencer.order import OrderKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from notification_service.jobs.audit.summary import AuditSummary


def summary_of(spark: SparkSession, audited: AuditedService) -> AuditSummary:
    from notification_service.jobs.audit.counting import summarize
    from notification_service.jobs.audit.job import audit_records
    from notification_service.jobs.audit.scopes import files_scope

    orders = audited.orders if audited.service.plan.has_orders else None
    scope = files_scope(spark, audited.file_settings(), audited.directory / "archive", orders)
    return summarize(audit_records(spark, scope, audited.settings(dict(scope.settled)), audited.directory / "audit"))


def test_nothing_is_found_where_nothing_is_wrong_however_the_files_are_cut_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notification_service.jobs.audit.lines, "PORTION_BYTES", 50_000)
    audited = AuditedService(tmp_path, "STRICT_SEQUENCE", rotate_bytes=100_000)
    audited.live(partitions=2)
    summary = summary_of(spark, audited)
    assert summary.is_good, summary.examples
    assert summary.units == 40
    assert summary.open == 0
    assert summary.incomplete > 0
    assert sum(each.count for each in summary.depth.bins) == summary.arrivals
    assert sum(each.count for each in summary.statuses) == summary.notifications
    assert summary.depth.median == 0
    assert summary.depth.percentile_99 is not None
    assert summary.depth.percentile_99 > 0
    assert not summary.waited_ms.bins, "files do not record when a record was written"
    assert summary.first_made_at is not None
    assert summary.last_made_at is not None
    assert summary.first_made_at < summary.last_made_at
    assert summary.lookups == (UsedLookups(None, summary.notifications),)
    assert {each.flow for each in summary.flows} == {"PaymentInitiationFlow", "FraudCheckFlow"}


def test_orders_explain_what_they_did_and_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    audited = AuditedService(tmp_path, has_orders=True)
    audited.live_with(Operator((OrderKind.RELEASE, OrderKind.SKIP, OrderKind.PAUSE), tmp_path), losses=0.1)
    summary = summary_of(spark, audited)
    assert summary.is_good, summary.examples
    assert summary.orders.done >= 3
    assert summary.orders.given == summary.orders.done + summary.orders.refused
    (tmp_path / "out" / "orders.jsonl").write_bytes(b"")
    found = {name for name, count in summary_of(spark, audited).counts.items() if count}
    assert Deviation.RELEASED_WITHOUT_ORDER in found


def test_all_faults_at_once_are_found_and_named(spark: SparkSession, tmp_path: Path) -> None:
    from notification_service.jobs.audit.counting import EXAMPLES

    audited = AuditedService(tmp_path)
    audited.live(units=60, losses=0.03)
    struck = [fault for fault in FAULTS if fault.name in AT_ONCE]
    for fault in struck:
        fault.strike(audited)
    summary = summary_of(spark, audited)
    found = {deviation for deviation, count in summary.counts.items() if count}
    assert found >= {fault.deviation.value for fault in struck}
    assert not summary.is_good
    order = [each.deviation for each in summary.examples]
    assert order == sorted(order, key=list(Deviation).index)
    assert {each.value: min(count, EXAMPLES) for each in Deviation if (count := summary.counts[each.value])} == Counter(order)
    assert (audited.directory / "audit" / "result" / "kind=finding").is_dir()


AT_ONCE = (
    "a release is dropped with all that it let out",
    "a notification is written again",
    "a unit is notified of that never came",
    "a late notification has no mark",
    "a dead letter is dropped",
)
