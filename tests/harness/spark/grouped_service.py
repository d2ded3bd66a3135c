"""A service with aggregation that has processed simulated payments and counted those of each message, and the audit of it all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.service_under_test import Service
from harness.spark.audited_service import AuditedService
from harness.steady import steady
from msgspec.structs import replace

from notification_service.aggregation.commands import FileCommands
from notification_service.aggregation.files import FileStore
from notification_service.aggregation.payments.commands import encode_close
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import StoreRunner
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.jobs.audit.rules import AuditSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from notification_service.jobs.audit.summary import AuditSummary

FINALS = ("ACCC", "RJCT", "CANC")
DEADLINE_MS = 60_000


class GroupedService(AuditedService):
    """The facts are in `facts`, the reports in `groups`. What is counted changes with `settings` of groups."""

    def __init__(self, directory: Path, strategy: str = "SEQUENCE", group_target: str = "report", **plan: Any) -> None:
        super().__init__(directory, strategy, has_facts=True, **plan)
        self.group_settings = PaymentsSettings(
            frozenset(FINALS), amend_after_ms=5_000, deadline_ms=DEADLINE_MS, target_type=group_target
        )

    def live_and_count(self, **plan: Any) -> None:
        """Process payments, and count in between, so that some groups are reported before all of their payments are there."""
        self.live_with(self._count, **plan)
        self._count(self.service)
        for _ in range(2):
            self.service.clock.advance(DEADLINE_MS)
            self._count(self.service)

    def close(self, group: str, person: str = "ann") -> None:
        FileCommands(self.facts).update(group, None, encode_close(person, "a test"))
        self._count(self.service)

    def _count(self, service: Service) -> None:
        settings = FileSettings("FACTS", self.facts, self.groups, notifications_name="completions")
        store = FileStore(FileTransport(settings, lambda *_: None), self.groups / "values.db")
        runner = StoreRunner(
            "payments", PaymentsOfMessage(self.group_settings), lambda: store, steady(service.clock), lambda _: None
        )
        for _ in range(4):
            runner.turn()
            if (problem := runner.report().problem) is not None:
                raise AssertionError(problem)
        runner.close()

    @property
    def facts(self) -> Path:
        return self.directory / "facts"

    @property
    def fact_lines(self) -> Path:
        return self.facts / "partition-0.jsonl"

    @property
    def groups(self) -> Path:
        return self.directory / "groups"

    @property
    def report_lines(self) -> Path:
        return self.groups / "completions.jsonl"

    def settings(self, settled: dict[int, int]) -> AuditSettings:
        return replace(super().settings(settled), final_statuses=FINALS)

    def summarized(self, spark: SparkSession) -> AuditSummary:
        """Run the whole job, and summarize it."""
        from notification_service.jobs.audit.counting import summarize
        from notification_service.jobs.audit.groups.sources import GroupDirectories
        from notification_service.jobs.audit.job import audit_records
        from notification_service.jobs.audit.scopes import files_scope

        directories = GroupDirectories(self.facts, self.groups)
        scope = files_scope(spark, self.file_settings(), self.directory / "archive", None, directories)
        return summarize(audit_records(spark, scope, self.settings(dict(scope.settled)), self.directory / "audit"))

    def of_groups(self, spark: SparkSession) -> list[tuple[str, str | None, str]]:
        """Return the findings of the groups alone, each with its unit or group and its sentence, without the replay of units."""
        from notification_service.jobs.audit.groups.job import audit_groups
        from notification_service.jobs.audit.groups.sources import GroupDirectories
        from notification_service.jobs.audit.row_audit import FINDING
        from notification_service.jobs.audit.scopes import files_scope
        from notification_service.jobs.audit.tables import RESULT_ROW
        from notification_service.jobs.spark.counted_write import spark_schema

        directories = GroupDirectories(self.facts, self.groups)
        scope = files_scope(spark, self.file_settings(), self.directory / "archive", None, directories)
        assert scope.groups is not None
        nothing = spark.createDataFrame([], spark_schema(RESULT_ROW))
        rows = audit_groups(scope.groups, nothing, self.settings(dict(scope.settled))).collect()
        return sorted((row.deviation, row.unit, row.what) for row in rows if row.kind == FINDING)
