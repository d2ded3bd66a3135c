"""Facts as a faultless service writes them, and the group reports that the aggregation makes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import pytest

from notification_service.aggregation.core import Completion, Processor, Slot, Stored
from notification_service.aggregation.payments.payments_of_message import PaymentsOfMessage, PaymentsSettings
from notification_service.connectors.line_format import Line, decode_line, encode_line
from notification_service.simulator.expectation import ExpectedUnit
from notification_service.simulator.generate.envelopes import PART_TYPES
from notification_service.simulator.verify.group_check import GroupRules, GroupsCheck
from notification_service.simulator.verify.order_rules import Rules
from notification_service.simulator.verify.verdict import Deviation, Findings
from resequencer.record import Origin, Partition, Record
from tests.notification_service.simulator.conftest import Outcome, Run, line, outcomes

FACTS = Partition("facts", 0)
DEADLINE_MS = 1_000
_HOUR_MS = 3_600_000


class Values(dict[Slot, Stored | None]):
    """The values of a store, in memory."""

    def find_all(self, slots: Collection[Slot]) -> Mapping[Slot, Stored]:
        return {slot: found for slot in slots if (found := self.get(slot)) is not None}

    def due(self, until: int, most: int) -> Sequence[str]:
        due = [slot.key for slot, each in self.items() if each is not None and each.due is not None and each.due <= until]
        return sorted(due)[:most]

    def keys(self, after: str, most: int) -> Sequence[str]:
        return sorted(slot.key for slot, each in self.items() if each is not None and not slot.member and slot.key > after)[:most]

    def members(self, key: str, most: int) -> Sequence[str]:
        return sorted(slot.member for slot, each in self.items() if each is not None and slot.key == key and slot.member)[:most]


class Counting:
    """The aggregation itself, without files and servers."""

    def __init__(self) -> None:
        self._processor = Processor(PaymentsOfMessage(PaymentsSettings(deadline_ms=DEADLINE_MS, amend_after_ms=_HOUR_MS)))
        self._values = Values()
        self.reports: list[bytes] = []
        self.offset = 0

    def count(self, facts: Sequence[bytes], now: int = 0) -> None:
        for each in facts:
            read = decode_line(each)
            assert isinstance(read, Line)
            self.give(read.key or b"", read.value, read.headers, now)

    def give(self, key: bytes, value: bytes, headers: Any = (), now: int = 0) -> None:
        self.offset += 1
        self._add(self._processor.apply(self._values, [Record(Origin(FACTS, self.offset), value, key, headers)], now))

    def wake(self, now: int) -> None:
        while not (turn := self._processor.wake(self._values, now, now)).is_empty:
            self._add(turn)

    def _add(self, turn: Any) -> None:
        self._values |= turn.changes
        for each in turn.output:
            assert isinstance(each, Completion)
            self.reports.append(encode_line(Line(each.value, each.key, each.headers))[:-1])


class Checked(NamedTuple):
    """What a test changes before it is compared."""

    run: Run
    facts: list[bytes]
    reports: list[bytes]

    def check(self) -> GroupsCheck:
        check = GroupsCheck(GroupRules())
        for each in self.run.units:
            check.expect(each)
        for fact in self.facts:
            check.add_fact(fact)
        for report in self.reports:
            check.add_report(report)
        return check

    def found(self) -> dict[Deviation, int]:
        findings = Findings()
        self.check().end(findings)
        return {deviation: count for deviation, count in findings.counts() if count}


def facts_of(run: Run, seed: int = 0) -> list[bytes]:
    """Return the facts of all units, of which each keeps its own order."""
    lanes = [list(_facts_of(each)) for each in run.units]
    rng, facts = Random(seed), []
    while lanes := [each for each in lanes if each]:
        facts.append(rng.choice(lanes[:40]).pop(0))
    return facts


def _facts_of(unit: ExpectedUnit) -> Iterator[bytes]:
    parts: set[str] = set()
    for outcome in outcomes(unit, Rules("SEQUENCE")):
        parts.update(outcome.envelope.parts)
        yield from _told(unit, outcome, parts)


def _told(unit: ExpectedUnit, outcome: Outcome, parts: set[str]) -> Iterator[bytes]:
    initiation, instruction, transaction = (each in parts for each in PART_TYPES)
    message = unit.message if initiation else None
    group = None if message is None else f"GROUP-{message.party}-{message.message_id}"
    for process in outcome.envelope.processes:
        if process.notification_id is None:
            continue
        value: dict[str, Any] = {"type": "status", "unit": unit.unit, "status": process.status}
        value |= {"late": True} if outcome.is_late else {}
        value |= {"amount": unit.amount, "currency": "EUR"} if transaction and unit.amount else {}
        if message is not None:
            original = {"OrgnlMsgId": message.message_id, "OrgnlMsgNmId": "pain.001.001.09", "OrgnlCreDtTm": message.created_at}
            original |= {"OrgnlNbOfTxs": message.total} if message.total else {}
            original |= {"OrgnlCtrlSum": message.control_sum} if message.control_sum else {}
            value["original"] = original
            if instruction and unit.payment_information_id:
                value["instruction"] = _instruction(unit.payment_information_id)
        headers = {"member": unit.unit, "notification-id": process.notification_id}
        headers |= {} if group is None else {"group-id": group}
        yield line(group or unit.unit, headers, value)


def _instruction(name: str) -> dict[str, str]:
    """Return what a payment information says of itself: the number is right for some, and wrong for others."""
    return {"OrgnlPmtInfId": name, "OrgnlNbOfTxs": "2"} | ({"OrgnlCtrlSum": "1.5"} if crc32(name.encode()) % 4 == 0 else {})


@pytest.fixture
def counted(known_run: Callable[..., Run]) -> Callable[..., Checked]:
    """Simulate, and count faultlessly."""

    def counted(**fields: Any) -> Checked:
        run = known_run(**fields)
        counting, facts = Counting(), facts_of(run)
        counting.count(facts)
        return Checked(run, facts, counting.reports)

    return counted


def edited(of: bytes, **changes: Any) -> bytes:
    """Return a line with other headers (`header_name=...`; None removes one) or with another value (`value=function`)."""
    read = msgspec.json.decode(of)
    for name, change in changes.items():
        if name == "value":
            change(read["value"])
        elif change is None:
            read["headers"].pop(name.replace("_", "-"), None)
        else:
            read["headers"][name.replace("_", "-")] = change
    return msgspec.json.encode(read)
