"""Stores in files with a real worker, and a console's source of them: groups, and the jobs of an import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from harness.service_under_test import FakeClock
from harness.steady import steady

from guardian.ports import TransportUnavailable
from notification_service.aggregation.atomic_store import UsersAggregate
from notification_service.aggregation.commands import CommandWriter, FileCommands
from notification_service.aggregation.completions import CompletionsLog, FileCompletions
from notification_service.aggregation.core import Aggregate
from notification_service.aggregation.files import FileStore, ValuesFile
from notification_service.aggregation.payments.commands import StatedInstruction, StatedMessage, StatusFact
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import StoreRunner
from notification_service.aggregation.view import FileView, StoreView
from notification_service.connectors.files.operations import SystemFiles
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.status.aggregation import AggregationStatus

HOUR_MS = 3_600_000
SETTINGS = PaymentsSettings(
    frozenset({"ACCC", "RJCT", "CANC"}), HOUR_MS, 48 * HOUR_MS, 7 * 24 * HOUR_MS, 90 * 24 * HOUR_MS, "report"
)
PARTY = "Bäckerei <b>Muster</b>"


class StoreStage:
    """A `StoreSource` of a store in `directory`. `give` gives commands, and `count` lets the store apply them."""

    def __init__(self, directory: Path, name: str, aggregate: Aggregate) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.clock = FakeClock()
        self.directory = directory
        self.is_away = False
        self.reported = AggregationStatus()
        self._commands = FileCommands(directory / "facts")
        settings = FileSettings("FACTS", directory / "facts", directory / "out", notifications_name="completions")

        def open_store() -> FileStore:
            return FileStore(FileTransport(settings, lambda *_: None), directory / "values.db")

        self._runner = StoreRunner(name, aggregate, open_store, steady(self.clock), lambda ms: None)

    def give(self, key: str, member: str | None, command: object) -> None:
        self._commands.update(key, member, msgspec.json.encode(command))

    def count(self) -> None:
        """Count all statuses that were given, and what is due by now."""
        for _ in range(3):
            self._runner.turn()

    def claim(self) -> Path:
        path = self.directory / "console"
        path.mkdir(exist_ok=True)
        return path

    def open_view(self) -> StoreView:
        self._check()
        return FileView(ValuesFile(self.directory / "values.db", is_copy=False))

    def open_copies(self) -> StoreView:
        return FileView(ValuesFile(self.directory / "values.db", is_copy=False))

    def open_commands(self) -> CommandWriter:
        self._check()
        return FileCommands(self.directory / "facts")

    def open_completions(self) -> CompletionsLog:
        self._check()
        return FileCompletions(self.directory / "out" / "completions.jsonl", SystemFiles(), has_values=True)

    def find_changes(self, key: str, limit: int) -> None:
        """Files keep none."""

    def find_status(self) -> AggregationStatus:
        return self.reported

    def close(self) -> None:
        self._runner.close()

    def _check(self) -> None:
        if self.is_away:
            raise TransportUnavailable("the brokers do not answer")


class GroupStage(StoreStage):
    """The store of groups. `status` gives statuses."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "payments", PaymentsOfMessage(SETTINGS))

    def status(
        self,
        group: str,
        unit: str,
        status: str = "ACCC",
        total: int | None = 2,
        amount: str | None = "12.50",
        instruction: str | None = None,
        control_sum: str | None = None,
        instruction_sum: str | None = None,
    ) -> None:
        """Give a status of a payment of the message `M-<group>`."""
        count = None if total is None else str(total)
        fact = StatusFact(
            unit,
            status,
            amount=amount,
            currency=None if amount is None else "EUR",
            entity="BANK_1",
            original=StatedMessage(f"M-{group}", "pain.001.001.09", "2026-03-28T10:00:00Z", count, control_sum),
            instruction=None if instruction is None else StatedInstruction(instruction, None, instruction_sum),
            party=msgspec.Raw(msgspec.json.encode({"Nm": PARTY})),
        )
        self.give(group, unit, fact)


class JobsStage(StoreStage):
    """A user's own store: the jobs of an import, as in the recipe. `finish` finishes a job of a request."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, "jobs", UsersAggregate(_apply, _on_value))

    def finish(self, request: str, job: int, jobs: int = 1) -> None:
        self.give(request, f"job-{job}", {"jobs": jobs, "contacts": 100})


def _apply(head: Any, member: Any, command: Any) -> tuple[Any, Any]:
    if member is not None:
        return head, member
    known = head or {"jobs": command["jobs"], "done": 0, "contacts": 0}
    return known | {"done": known["done"] + 1, "contacts": known["contacts"] + command["contacts"]}, command["contacts"]


def _on_value(key: str, old: Any, new: Any) -> list[Any]:
    del old
    return [{"request": key, "contacts": new["contacts"]}] if new["done"] == new["jobs"] else []
