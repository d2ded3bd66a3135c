"""Random histories of groups in files: facts of any order and quality, closes and deadlines, and what the service reports."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
from harness.service_under_test import FakeClock
from harness.steady import steady

from notification_service.aggregation.commands import FileCommands
from notification_service.aggregation.files import FileStore
from notification_service.aggregation.payments.commands import encode_close
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.aggregation.runner import StoreRunner
from notification_service.connectors.files.settings import FileSettings
from notification_service.connectors.files.sink import FileTransport
from notification_service.connectors.line_format import Line, encode_line
from resequencer.notification import notification_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from notification_service.jobs.audit.groups.job import GroupRecords
    from notification_service.jobs.audit.row_audit import ResultRow

FINALS = ("ACCC", "RJCT", "CANC")
_STATUSES = ("RCVD", "ACCP", "ACSC", "ACCC", "ACCC", "ACCC", "RJCT", "CANC")
_HOUR = 3_600_000


class RandomGroups:
    """Groups in `directory`: the facts in `facts`, the reports in `groups`."""

    def __init__(self, directory: Path, seed: int, target_type: str = "report") -> None:
        self.directory = directory
        self._random = Random(seed)
        self._clock = FakeClock()
        self._settings = PaymentsSettings(frozenset(FINALS), target_type=target_type)
        self._said = 0
        (directory / "facts").mkdir(parents=True)

    def live(self, groups: int, facts: int) -> None:
        """Write facts of so many groups, and count them now and then; at the end all that is due is reported."""
        chance = self._random
        messages = {f"G{number:02}": self._message() for number in range(groups)}
        for _ in range(facts):
            group = chance.choice(list(messages))
            self._write(group, *messages[group])
            if chance.random() < 0.01:
                FileCommands(self.facts).update(group, None, encode_close("ann", "a test"))
            if chance.random() < 0.2:
                self.count()
            if chance.random() < 0.2:
                self._clock.advance(chance.choice((1_000, _HOUR, 10 * _HOUR)))
        for _ in range(3):
            self._clock.advance(49 * _HOUR)
            self.count()

    def count(self) -> None:
        settings = FileSettings("FACTS", self.facts, self.groups, notifications_name="completions")
        store = FileStore(FileTransport(settings, lambda *_: None), self.groups / "values.db")
        runner = StoreRunner("payments", PaymentsOfMessage(self._settings), lambda: store, steady(self._clock), lambda _: None)
        for _ in range(2):
            runner.turn()
        assert runner.report().problem is None
        runner.close()

    def audited(self, spark: SparkSession) -> list[ResultRow]:
        from notification_service.jobs.audit.groups.sources import GroupDirectories, groups_of_files

        return audited_groups(spark, groups_of_files(spark, GroupDirectories(self.facts, self.groups), []))

    @property
    def facts(self) -> Path:
        return self.directory / "facts"

    @property
    def groups(self) -> Path:
        return self.directory / "groups"

    @property
    def report_lines(self) -> Path:
        return self.groups / "completions.jsonl"

    def _message(self) -> tuple[dict[str, str], list[dict[str, Any]]]:
        """Return what facts say of a message, and its payments. What the message says may be wrong, or not there."""
        chance = self._random
        payments = [self._payment(number) for number in range(chance.randint(1, 6))]
        total = len(payments) + chance.choice((0, 0, 0, 0, 0, 1, -1))
        units = sum(round(100 * float(each.get("amount", "0"))) for each in payments)
        original_fields = {"OrgnlMsgId": "M", "OrgnlMsgNmId": "pain.001.001.09", "OrgnlNbOfTxs": str(max(1, total))}
        if chance.random() < 0.6:
            original_fields["OrgnlCtrlSum"] = f"{units // 100}.{units % 100:02}" if chance.random() < 0.8 else "1.5"
        if chance.random() < 0.1:
            del original_fields["OrgnlNbOfTxs"]
        for name in {each["instruction"]["OrgnlPmtInfId"] for each in payments if "instruction" in each}:
            _state_numbers([each for each in payments if each.get("instruction", {}).get("OrgnlPmtInfId") == name], chance)
        return original_fields, payments

    def _payment(self, number: int) -> dict[str, Any]:
        chance = self._random
        payment: dict[str, Any] = {"unit": f"payment-{number}"}
        if chance.random() < 0.9:
            payment |= {"amount": f"{chance.randint(0, 99)}.{chance.choice(('5', '50', '25'))}", "currency": "EUR"}
        if chance.random() < 0.8:
            payment["instruction"] = {"OrgnlPmtInfId": f"P{chance.randint(1, 3)}"}
        return payment

    def _write(self, group: str, original: dict[str, str], payments: list[dict[str, Any]]) -> None:
        chance = self._random
        payment = dict(chance.choice(payments))
        original_fields = {name: text for name, text in original.items() if name != "OrgnlCtrlSum" or chance.random() < 0.9}
        if chance.random() < 0.01:
            original_fields["OrgnlNbOfTxs"] = "99"
        if chance.random() < 0.1:
            payment.pop("amount", None)
        self._said += 1
        value = {"type": "status", "status": chance.choice(_STATUSES), **payment, "original": original_fields}
        value["initiatingParty"] = {"Nm": "A"}
        if chance.random() < 0.1:
            value["late"] = True
        identifier = notification_id(f"{group}/{payment['unit']}", str(self._said), 0)
        headers = (("member", payment["unit"].encode()), ("notification-id", identifier.encode()))
        lines = [Line(msgspec.json.encode(value), group.encode(), headers)]
        if chance.random() < 0.02:
            lines.append(Line(lines[0].value, lines[0].key, (*headers, ("possible-duplicate", b"true"))))
        with (self.facts / "partition-0.jsonl").open("ab") as file:
            file.writelines(map(encode_line, lines))


def _state_numbers(payments: list[dict[str, Any]], chance: Random) -> None:
    """Let the payment information of these payments state its NbOfTxs and its CtrlSum, which may be wrong."""
    stated = payments[0]["instruction"]
    if chance.random() < 0.5:
        stated["OrgnlNbOfTxs"] = str(len(payments) + chance.choice((0, 0, 1)))
    if chance.random() < 0.5:
        units = sum(round(100 * float(each.get("amount", "0"))) for each in payments)
        stated["OrgnlCtrlSum"] = f"{units // 100}.{units % 100:02}" if chance.random() < 0.7 else "1.5"
    for each in payments:
        each["instruction"] = stated


def audited_groups(spark: SparkSession, records: GroupRecords) -> list[ResultRow]:
    """Audit groups alone: no source position is settled, so no notifications are expected."""
    from notification_service.jobs.audit.groups.job import audit_groups
    from notification_service.jobs.audit.row_audit import ResultRow
    from notification_service.jobs.audit.rules import AuditSettings
    from notification_service.jobs.audit.tables import RESULT_ROW
    from notification_service.jobs.spark.counted_write import spark_schema
    from notification_service.payments.settings import HandlerSettings
    from notification_service.payments.strategies import StrategySettings
    from resequencer.settings import ResequencerSettings

    nothing = spark.createDataFrame([], spark_schema(RESULT_ROW))
    own = (StrategySettings("SEQUENCE"), HandlerSettings(), ResequencerSettings(), "", "no-lookups", "IN", 5 << 20, {})
    return [ResultRow(*row) for row in audit_groups(records, nothing, AuditSettings(*own, final_statuses=FINALS)).collect()]
