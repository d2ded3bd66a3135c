"""A service that has processed simulated payments, and the audit's report on it. Tests plant faults into its output."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
from harness.packages import ROOT
from harness.service_under_test import DEADLINE_MS, TOPIC, Plan, Service

from notification_service.connectors.files.settings import FileSettings
from notification_service.events.pass_through import PASS_THROUGH, PassThrough
from notification_service.events.settings import IPF
from notification_service.jobs.audit.job import Made, Timing, bucket_size, overdue
from notification_service.jobs.audit.lines import find_scope, read_portion
from notification_service.jobs.audit.row_audit import ARRIVAL, FINDING, PAUSED, PUBLISHED, UNIT, WAITING, ResultRow, audit_rows
from notification_service.jobs.audit.rules import AuditRules, AuditSettings
from notification_service.payments.notification_settings import parse_notification_settings
from notification_service.payments.settings import HandlerSettings, make_handler
from notification_service.payments.strategies import StrategySettings
from notification_service.simulator.generate.plan import Plan as SimulatedPlan
from notification_service.simulator.generate.simulation import simulate

Line = dict[str, Any]
TABLE = (ROOT / "conf" / "notification-settings.csv").read_text(encoding="utf-8")


class AuditedService:
    """A service whose files are in `directory`."""

    def __init__(
        self, directory: Path, strategy: str = "SEQUENCE", target_type: str = "report", handler: str | None = None, **plan: Any
    ) -> None:
        self.directory = directory
        self.strategy = strategy
        own = None if handler == PASS_THROUGH else handler
        self.handler_settings = HandlerSettings(target_type, handler=own, makes_facts=bool(plan.get("has_facts")))
        self.meanwhile: Callable[[], object] = lambda: None
        self.service = Service(directory, Plan(strategy=strategy, **plan))
        self.passes_through = handler == PASS_THROUGH or self.service.plan.records.format != IPF
        if not self.passes_through:
            self.service.handler = make_handler(self.handler_settings, parse_notification_settings(StringIO(TABLE), "settings"))
        else:
            self.service.handler = PassThrough()

    def live(self, **plan: Any) -> None:
        """Process simulated payments: all deadlines pass, late envelopes come, and everything is processed."""
        self.live_with(_let_be, **plan)

    def live_with(self, trouble: Callable[[Service], object], **plan: Any) -> None:
        """The same, with `trouble` called after the first cycle, before the late envelopes come, and at the end."""
        self._trouble = trouble
        service = self.service
        service.start()
        planned = SimulatedPlan(**({"units": 40, "seed": 7, "window": 60, "losses": 0.02, "late": 0.02, "garbage": 0.01} | plan))
        simulate(planned, self.directory / "in", self.directory / "expected.jsonl", _ignore, self._pass)
        self._pass(DEADLINE_MS + 1)
        service.stop()

    def _pass(self, milliseconds: int) -> None:
        if self._trouble is not _let_be:
            self.service.cycle.run_once()
        self._trouble(self.service)
        self.service.run()
        self.service.run_after(milliseconds)

    def settings(self, settled: dict[int, int]) -> AuditSettings:
        plan = self.service.plan
        return AuditSettings(
            plan.settings or StrategySettings(self.strategy),
            self.handler_settings,
            self.service.plan.resequencer,
            TABLE,
            str(self.directory / "lookups"),
            TOPIC,
            5 * 1024 * 1024,
            settled,
            grace_ms=0,
            events=plan.records,
            passes_through=self.passes_through,
        )

    def file_settings(self) -> FileSettings:
        return FileSettings(TOPIC, self.directory / "in", self.directory / "out")

    def audit(self) -> list[ResultRow]:
        orders = self.orders if self.service.plan.has_orders else None
        scope = find_scope(self.file_settings(), self.directory / "archive", orders)
        self.meanwhile()
        rules = AuditRules(self.settings(scope.settled))
        rows = [row for portion in scope.portions for row in read_portion(portion, rules)]
        audited = list(audit_rows(sorted(rows), rules))
        waiting = [each for each in audited if each.kind == WAITING]
        return [*audited, *overdue(waiting, timing_of(audited), rules.settings)]

    def findings(self) -> list[tuple[str | None, str | None]]:
        """Return the deviations, each with its unit."""
        return [(each.deviation, each.unit) for each in self.audit() if each.kind == FINDING]

    def open(self) -> int:
        return sum(each.open or 0 for each in self.audit() if each.kind == UNIT)

    @property
    def orders(self) -> Path:
        return self.directory / "orders"

    # Faults

    @property
    def notifications(self) -> Path:
        return self.directory / "out" / "notifications.jsonl"

    @property
    def dead_letters(self) -> Path:
        return self.directory / "out" / "dead-letters.jsonl"


def timing_of(audited: list[ResultRow]) -> Timing:
    """Gather the timing as the job does."""
    lengths: dict[int, int] = {}
    for each in audited:
        if each.kind == ARRIVAL and each.partition is not None and each.offset is not None:
            lengths[each.partition] = max(each.offset + 1, lengths.get(each.partition, 0))
    made: dict[tuple[int, int], list[int]] = {}
    for each in audited:
        if each.kind == PUBLISHED and each.partition is not None and each.offset is not None and each.made_at is not None:
            bucket = each.offset // bucket_size(lengths[each.partition])
            made.setdefault((each.partition, bucket), []).append(each.made_at)
    paused = {each.partition: each.waited_ms for each in audited if each.kind == PAUSED and each.partition is not None}
    return Timing((Made(*at, min(instants), max(instants)) for at, instants in made.items()), lengths, paused)


def _let_be(service: Service) -> None:
    del service


def _ignore(done: int, total: int) -> None:
    del done, total


def lines_of(path: Path) -> list[Line]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def write_lines(path: Path, lines: list[Line]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
