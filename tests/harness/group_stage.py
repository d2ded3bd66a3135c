"""A group of payments on a stage: its commands as records, what they lead to, and what is stored."""

import json
from collections.abc import Sequence
from typing import Any

from defusedxml import ElementTree
from harness.kept_values import KeptValues

from guardian.headers import MEMBER, texts_of
from notification_service.aggregation.core import Completion, Processor, Slot, Turn
from notification_service.aggregation.payments.group_view import GroupView, describe
from notification_service.aggregation.payments.head import Head, Member, decode_head, decode_member
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter
from resequencer.record import Origin, Partition, Record

KEY = "GROUP"
SECOND, HOUR = 1_000, 3_600_000
DAY = 24 * HOUR
ORIGINAL = {"OrgnlMsgId": "MSG-1", "OrgnlMsgNmId": "pain.001.001.09", "OrgnlCreDtTm": "2026-03-28T10:00:00Z"}
PARTY = {"Nm": "Müller & Söhne"}


def message(total: int | str | None = 2, control_sum: str | None = None, **others: str) -> dict[str, str]:
    """Return what a fact says of its message."""
    stated = {"OrgnlNbOfTxs": None if total is None else str(total), "OrgnlCtrlSum": control_sum}
    return ORIGINAL | {name: text for name, text in stated.items() if text is not None} | others


def instruction(name: str, total: str | None = None, control_sum: str | None = None) -> dict[str, str]:
    """Return what a fact says of its payment information."""
    stated = {"OrgnlPmtInfId": name, "OrgnlNbOfTxs": total, "OrgnlCtrlSum": control_sum}
    return {key: text for key, text in stated.items() if text is not None}


def status_body(unit: str, status: str, **fact: Any) -> bytes:
    """Return a fact as JSON. `instruction` may be an OrgnlPmtInfId alone; None leaves a part out."""
    if isinstance(fact.get("instruction"), str):
        fact["instruction"] = {"OrgnlPmtInfId": fact["instruction"]}
    fields = {"type": "status", "unit": unit, "status": status, "original": message(), "initiatingParty": PARTY} | fact
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def command_record(member: str | None, body: bytes, offset: int, *, key: str = KEY, partition: int = 0) -> Record:
    headers = () if member is None else ((MEMBER, member.encode()),)
    return Record(Origin(Partition("facts", partition), offset), body, key.encode(), headers)


def reports_of(output: Sequence[Completion | DeadLetter]) -> list[Completion]:
    return [each for each in output if isinstance(each, Completion)]


def report_in(completion: Completion) -> dict[str, Any]:
    """Return the content of CstmrPmtStsRpt."""
    report: dict[str, Any] = json.loads(completion.value)["CstmrPmtStsRpt"]
    return report


def document_in(completion: Completion) -> Any:
    return ElementTree.fromstring(completion.value)


def marks_of(completion: Completion) -> dict[str, str]:
    """Return the headers but those that each report has."""
    return {
        name: text
        for name, text in texts_of(completion.headers).items()
        if name not in ("notification-id", "group-id", "group-total", "processing-entity")
    }


class GroupStage:
    """One group. Each command is one turn, at the next offset and at `now`, unless the test says otherwise."""

    def __init__(self, **settings: Any) -> None:
        self.settings = PaymentsSettings(**settings)
        self.processor = Processor(PaymentsOfMessage(self.settings))
        self.values = KeptValues()
        self.now: Instant = 1_774_740_835_941
        self.offset = 0
        self.fields: dict[str, Any] = {}
        """What all facts say."""

    def say(self, unit: str, status: str, *, offset: int | None = None, partition: int = 0, **fact: Any) -> list[Completion]:
        """Apply a status, and return the reports that it leads to."""
        body = status_body(unit, status, **(self.fields | fact))
        return self.completions(self.apply(command_record(unit, body, self._place(offset), partition=partition)))

    def close(self, person: str = "anna", because: str = "the sender is gone") -> list[Completion]:
        body = json.dumps({"type": "close", "person": person, "because": because}).encode()
        return self.completions(self.apply(command_record(None, body, self._place(None))))

    def apply(self, *records: Record) -> Turn:
        turn = self.processor.apply(self.values, records, self.now)
        self.values.commit(turn)
        return turn

    def wait(self, for_ms: int) -> list[Completion]:
        """Let time pass, with a turn at each instant that is due until then, and return the reports."""
        until, reports = self.now + for_ms, []
        while (due := [each.due for each in self.values.stored.values() if each.due is not None and each.due <= until]) != []:
            self.now = max(self.now, min(due))
            reports += self.completions(self.wake())
        self.now = until
        return reports

    def wake(self) -> Turn:
        turn = self.processor.wake(self.values, self.now, self.now)
        self.values.commit(turn)
        return turn

    def completions(self, turn: Turn) -> list[Completion]:
        letters = [each for each in turn.output if isinstance(each, DeadLetter)]
        assert not letters, letters[0].error
        return reports_of(turn.output)

    @property
    def head(self) -> Head:
        return decode_head(self.values.stored[Slot(KEY)].body)

    @property
    def view(self) -> GroupView:
        return describe(KEY, self.values.stored[Slot(KEY)].body)

    @property
    def counts(self) -> dict[str, int]:
        return {status: tally.count for status, tally in self.head.statuses.items()}

    def member(self, unit: str) -> Member:
        return decode_member(self.values.stored[Slot(KEY, unit)].body)

    def _place(self, offset: int | None) -> int:
        self.offset = self.offset + 1 if offset is None else max(self.offset, offset)
        return self.offset if offset is None else offset
