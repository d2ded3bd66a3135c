"""Groups recomputed from the commands by other means than the service: each time all members are counted anew."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias

from harness.simulated_stores.commands import FINALS
from simulation.fakes.broker import Stored

from guardian.headers import GROUP_ID, GROUP_REPORT, MEMBER
from notification_service.payments.iso20022.codes import TRANSACTION_STATUSES

OPEN, COMPLETE, INCOMPLETE, CLOSED, ENDED = "open", "complete", "incomplete", "closed", "ended"
Value: TypeAlias = tuple[bytes, int | None]
"""The body of a value, and when it is due."""


class Told(NamedTuple):
    """What a report has to say: its number, and per status how many payments have it, and the sum of their amounts."""

    key: str
    number: int
    statuses: Mapping[str, tuple[int, Decimal | None]]


class Payment:
    def __init__(self) -> None:
        self.status = ""
        self.amount: str | None = None
        self.instruction: str | None = None
        self.offset = -1


class Group:
    def __init__(self) -> None:
        self.state = OPEN
        self.total: int | None = None
        self.members: dict[str, Payment] = {}
        self.reports = 0
        self.too_late = 0
        self.kept: object = None
        """What the last report said."""

    def statuses(self) -> dict[str, tuple[int, Decimal | None]]:
        found: dict[str, tuple[int, Decimal | None]] = {}
        for status in sorted({each.status for each in self.members.values()}):
            amounts = [each.amount for each in self.members.values() if each.status == status]
            is_known = all(each is not None for each in amounts)
            found[status] = len(amounts), sum(map(Decimal, filter(None, amounts)), Decimal(0)) if is_known else None
        return found

    def instructions(self) -> dict[str, dict[str, int]]:
        names = sorted({each.instruction for each in self.members.values() if each.instruction is not None})
        return {name: dict(Counter(each.status for each in self.members.values() if each.instruction == name)) for name in names}

    def final(self) -> int:
        return sum(each.status in FINALS for each in self.members.values())

    def content(self) -> object:
        """Return what a report would say now."""
        instructions = self.instructions()
        return self.total, self.statuses(), instructions if len(instructions) > 1 else None

    def report(self, key: str, state: str) -> Told:
        self.state, self.reports, self.kept = state, self.reports + 1, self.content()
        return Told(key, self.reports, self.statuses())


class Recomputed:
    """The groups of a partition after some of its commands. `letters` counts the commands that cannot be applied."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.letters = 0

    def apply(self, record: Stored, offset: int) -> Told | None:
        """Apply a command; return the report that it causes."""
        key, member, fields = _read(record)
        if fields is None or (fields["type"] == "status" and "original" in fields and fields["unit"] != member):
            self.letters += 1
            return None
        if fields["type"] == "close":
            return self._close(key)
        return self._status(key, member, fields, offset) if "original" in fields else None

    def _status(self, key: str, member: str, fields: Any, offset: int) -> Told | None:
        group = self.groups.setdefault(key, Group())
        if group.state == ENDED:
            group.too_late += 1
            group.members.pop(member, None)  # It is forgotten a little earlier than the others.
        elif not (fields.get("late", False) and member in group.members):
            self._count(group, member, fields, offset)
            if group.state in (OPEN, INCOMPLETE) and group.total == len(group.members) == group.final():
                return group.report(key, COMPLETE)
        return None

    def _count(self, group: Group, member: str, fields: Any, offset: int) -> None:
        if group.total is None and "OrgnlNbOfTxs" in fields["original"]:
            group.total = int(fields["original"]["OrgnlNbOfTxs"])
        payment = group.members.setdefault(member, Payment())
        payment.status, payment.offset = fields["status"], offset
        payment.amount = fields.get("amount", payment.amount)
        payment.instruction = fields.get("instruction", {}).get("OrgnlPmtInfId", payment.instruction)

    def find_differences(self, values: Mapping[str, Value]) -> Iterator[str]:
        """Yield what is different in the values: those of groups by their ids, those of payments by `group/payment`."""
        expected = set(self.groups)
        for key, group in self.groups.items():
            yield from _compare_head(key, group, json.loads(values[key][0]) if key in values else {})
            for member, payment in group.members.items():
                expected.add(f"{key}/{member}")
                body = values.get(f"{key}/{member}", (b"null", None))[0]
                found = json.loads(body) or [None] * 7
                amounts = [each and Decimal(each) for each in (found[2], payment.amount)]
                fields = [payment.status, payment.instruction, payment.offset]
                if [found[at] for at in (1, 4, 6)] != fields or amounts[0] != amounts[1]:
                    yield f"the value of {key}/{member} is {body!r}, expected: {fields}, {payment.amount}"
        if extra := values.keys() - expected:
            yield f"there are values of {sorted(extra)}, which should be forgotten"

    def _close(self, key: str) -> Told | None:
        group = self.groups.get(key)
        if group is None or group.state == ENDED:
            self.letters += 1
            return None
        return group.report(key, CLOSED) if group.state in (OPEN, INCOMPLETE) else None


def _read(record: Stored) -> tuple[str, str, Any]:
    """Return key, member and what the command says; None if it is none."""
    key, member = (record.key or b"").decode(), dict(record.headers).get(MEMBER, b"").decode()
    try:
        fields = json.loads(record.value or b"")
    except ValueError:
        return key, member, None
    is_command = key and "/" not in key and fields.get("type") in ("status", "close")
    if not is_command or fields.get("status", "ACTC") not in TRANSACTION_STATUSES:
        return key, member, None
    return key, member, fields


def read_report(record: Stored) -> Told:
    """Return what the record of a report says."""
    headers = dict(record.headers)
    group = json.loads(record.value or b"")["CstmrPmtStsRpt"]["OrgnlGrpInfAndSts"]
    statuses = {
        each["DtldSts"]: (int(each["DtldNbOfTxs"]), Decimal(each["DtldCtrlSum"]) if "DtldCtrlSum" in each else None)
        for each in group.get("NbOfTxsPerSts", ())
    }
    return Told(headers[GROUP_ID].decode(), int(headers[GROUP_REPORT]), statuses)


def _compare_head(key: str, group: Group, head: Mapping[str, Any]) -> Iterator[str]:
    found = {
        "state": head.get("state", OPEN),
        "total": head.get("total"),
        "members": head.get("members", 0),
        "final": head.get("final", 0),
        "statuses": {status: _tally(each) for status, each in head.get("statuses", {}).items()},
        "reports": head.get("reports", 0),
        "too late": head.get("too_late", 0),
    }
    expected = {
        "state": group.state,
        "total": group.total,
        "members": len(group.members),
        "final": group.final(),
        "statuses": group.statuses(),
        "reports": group.reports,
        "too late": group.too_late,
    }
    if group.state == ENDED:  # What it counted stays for operators; its members may be forgotten.
        for name in ("members", "final", "statuses"):
            del found[name], expected[name]
    elif {name: each["counts"] for name, each in head.get("instructions", {}).items()} != group.instructions():
        yield (f"the payment informations of {key} are {head.get('instructions')}, expected: {group.instructions()}")
    if found != expected:
        yield (f"the value of {key} is {found}, expected: {expected}")


def _tally(stored: list[Any]) -> tuple[int, Decimal | None]:
    count, total, unknown = stored
    return count, None if unknown else Decimal(total)
