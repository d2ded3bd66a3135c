"""Counts the payments of a group, and reads the facts of the service and the reports of its groups: one per line."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from guardian.headers import (
    AMENDED,
    AMOUNT,
    CLOSED_BY,
    GROUP_ID,
    GROUP_REPORT,
    GROUP_STATUS,
    GROUP_TOTAL,
    INCOMPLETE,
    MEMBER,
    NOTIFICATION_ID,
    POSSIBLE_DUPLICATE,
    texts_of,
)
from notification_service.connectors.line_format import Defect, Line, decode_line
from notification_service.simulator.generate.pain001 import XmlRefused, parse_iso_xml

MAX_INSTRUCTIONS = 100
"""With more payment informations a report has only the counts of the message."""

_WHOLE = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,17})?")
_GROUP_CODES = frozenset(["ACCC", "ACCP", "ACSC", "ACSP", "ACTC", "ACWC", "PART", "PDNG", "RCVC", "RCVD", "RJCT", "RVCM", "RVNC"])


class Payment(NamedTuple):
    """What is known of a payment: its latest status, its amount, and the payment information that it is of."""

    status: str
    amount: Decimal | None
    instruction: str | None


class Stated(NamedTuple):
    """What a payment information says of itself: its NbOfTxs and its CtrlSum."""

    total: int | None = None
    control_sum: Decimal | None = None


class Counted(NamedTuple):
    """How many payments have a status, and the sum of their amounts; None if one is unknown."""

    status: str
    payments: int
    total: Decimal | None


class Counts(NamedTuple):
    """What a report says of the payments: by status, and for a message with several payment informations by these.

    A payment information is its id, its PmtInfSts, and its payments by status. All is in alphabetical order.
    """

    statuses: tuple[Counted, ...]
    instructions: tuple[tuple[str, str | None, tuple[tuple[str, int], ...]], ...]

    @property
    def members(self) -> int:
        return sum(each.payments for each in self.statuses)

    def final(self, finals: Collection[str]) -> int:
        return sum(each.payments for each in self.statuses if each.status in finals)


def count(payments: Collection[Payment], stated: Mapping[str, Stated], *, has_status: bool) -> Counts:
    """Count payments. `has_status`: they are all there and final, so that payment informations have a status.

    One whose `stated` numbers are not what it holds has none.
    """
    instructions = sorted({each.instruction for each in payments if each.instruction is not None})
    names = instructions if 2 <= len(instructions) <= MAX_INSTRUCTIONS else []
    return Counts(
        tuple(_counted(name, [each for each in payments if each.status == name]) for name in _statuses(payments)),
        tuple(
            _instruction(name, [each for each in payments if each.instruction == name], stated.get(name, Stated()), has_status)
            for name in names
        ),
    )


def group_code(statuses: Iterable[str]) -> str | None:
    """Return the one code for payments with these statuses, None if there is none."""
    found = set(statuses)
    if len(found) == 1:
        return found.pop() if found <= _GROUP_CODES else None
    if found == {"ACSC", "ACCC"}:
        return "ACSC"
    ended = {each for each in found if not each.startswith("AC")}
    return "PART" if ended and ended != found and ended <= {"RJCT", "CANC"} else None


def whole_number(text: str | None) -> int | None:
    """Return a number of at most 15 digits, None for any other text."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None


def number(text: str | None) -> Decimal | None:
    """Return a decimal number, None for any other text."""
    return Decimal(text) if text is not None and _NUMBER.fullmatch(text) else None


def _statuses(payments: Iterable[Payment]) -> list[str]:
    return sorted({each.status for each in payments})


def _counted(status: str, payments: Collection[Payment]) -> Counted:
    return Counted(status, len(payments), _sum(payments))


def _instruction(
    name: str, payments: Collection[Payment], stated: Stated, has_status: bool
) -> tuple[str, str | None, tuple[tuple[str, int], ...]]:
    statuses = [each.status for each in payments]
    counted = tuple((each, statuses.count(each)) for each in sorted(set(statuses)))
    total = _sum(payments)
    is_right = stated.total in (None, len(payments)) and (total is None or stated.control_sum in (None, total))
    return name, group_code(statuses) if has_status and is_right else None, counted


def _sum(payments: Collection[Payment]) -> Decimal | None:
    """Return the sum of the amounts, None if one is unknown."""
    amounts = [each.amount for each in payments if each.amount is not None]
    return sum(amounts, Decimal()) if len(amounts) == len(payments) else None


class ObservedFact(msgspec.Struct, frozen=True):
    """A status of a payment. `group` is None if the payment belongs to none; the texts are those of its message.

    `instruction` is its payment information; `instruction_total` and `instruction_sum` are the NbOfTxs and CtrlSum of that.
    """

    unit: str
    notification_id: str
    status: str
    is_late: bool
    is_possible_duplicate: bool
    group: str | None
    total: str | None
    control_sum: str | None
    amount: str | None
    instruction: str | None
    instruction_total: str | None = None
    instruction_sum: str | None = None


class ObservedGroupReport(msgspec.Struct, frozen=True):
    """A report by its headers and its value. `number` counts the reports of its group from 1.

    `missing` is what the header `incomplete` says, `status` the GrpSts of the value and `said_status` that of the headers.
    """

    group: str
    number: int
    notification_id: str | None
    message_id: str | None
    said_total: str | None
    total: str | None
    said_status: str | None
    status: str | None
    missing: int | None
    is_amended: bool
    is_closed: bool
    is_possible_duplicate: bool
    counts: Counts


def read_fact(line: bytes) -> ObservedFact | Defect | None:
    """Read a fact from a line without its newline. None: it is another command, such as to close its group."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    headers = texts_of(read.headers)
    unit, identifier = headers.get(MEMBER), headers.get(NOTIFICATION_ID)
    value = _json(read)
    if isinstance(value, Mapping) and value.get("type") not in (None, "status"):
        return None
    if unit is None or identifier is None or not isinstance(value, Mapping) or value.get("unit") != unit:
        return Defect(f"no fact of a unit with the headers {MEMBER} and {NOTIFICATION_ID}")
    key, group = (read.key or b"").decode(errors="replace"), headers.get(GROUP_ID)
    if key != (group or unit):
        return Defect(f"its key is {key!r:.80}, not its group or its unit")
    original = value.get("original")
    return ObservedFact(
        unit,
        identifier,
        str(value.get("status")),
        value.get("late") is True,
        POSSIBLE_DUPLICATE in headers,
        group,
        _text(original, "OrgnlNbOfTxs"),
        _text(original, "OrgnlCtrlSum"),
        _text(value, AMOUNT),
        _text(value.get("instruction"), "OrgnlPmtInfId"),
        _text(value.get("instruction"), "OrgnlNbOfTxs"),
        _text(value.get("instruction"), "OrgnlCtrlSum"),
    )


def read_group_report(line: bytes) -> ObservedGroupReport | Defect:
    """Read a report from a line without its newline."""
    read = decode_line(line)
    if isinstance(read, Defect):
        return read
    headers = texts_of(read.headers)
    group, number, missing = headers.get(GROUP_ID), whole_number(headers.get(GROUP_REPORT)), headers.get(INCOMPLETE)
    original = _at(_json(read), "CstmrPmtStsRpt", "OrgnlGrpInfAndSts")
    if group is None or number is None or original is None:
        return Defect(f"no report of a group with the headers {GROUP_ID} and {GROUP_REPORT}")
    return ObservedGroupReport(
        group,
        number,
        headers.get(NOTIFICATION_ID),
        _text(original, "OrgnlMsgId"),
        headers.get(GROUP_TOTAL),
        _text(original, "OrgnlNbOfTxs"),
        headers.get(GROUP_STATUS),
        _text(original, "GrpSts"),
        None if missing is None else whole_number(missing) or 0,
        AMENDED in headers,
        CLOSED_BY in headers,
        POSSIBLE_DUPLICATE in headers,
        Counts(tuple(sorted(_reported(original))), tuple(sorted(_instructions(_at(_json(read), "CstmrPmtStsRpt"))))),
    )


def _instructions(report: Mapping[str, Any]) -> Iterator[tuple[str, str | None, tuple[tuple[str, int], ...]]]:
    for each in _all(report, "OrgnlPmtInfAndSts"):
        counted = tuple(sorted((found.status, found.payments) for found in _reported(each)))
        yield _text(each, "OrgnlPmtInfId") or "", _text(each, "PmtInfSts"), counted


def _reported(of: Mapping[str, Any]) -> Iterator[Counted]:
    for each in _all(of, "NbOfTxsPerSts"):
        total = _text(each, "DtldCtrlSum")
        count = whole_number(_text(each, "DtldNbOfTxs"))
        yield Counted(_text(each, "DtldSts") or "", -1 if count is None else count, None if total is None else Decimal(total))


def _json(read: Line) -> Any:
    value = read.content
    try:
        return parse_iso_xml(value).tree if value.lstrip().startswith(b"<") else msgspec.json.decode(value)
    except (XmlRefused, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _at(tree: Any, *tags: str) -> Any:
    for tag in tags:
        tree = tree.get(tag) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, Mapping) else None


def _all(tree: Mapping[str, Any], tag: str) -> list[Mapping[str, Any]]:
    """Return the elements of a tag; XML with one element has no list."""
    found = tree.get(tag)
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, Mapping)]


def _text(tree: Any, tag: str) -> str | None:
    found = tree.get(tag) if isinstance(tree, Mapping) else None
    return found if isinstance(found, str) else None


_LONGEST_ID = 35
_NOT_PROVIDED = "NOTPROVIDED"


class ReplayedGroup:
    """The payments of a group after the facts that were applied, in their order.

    `first_through` are the counts at the first moment at which a report on a complete group is due, None before it; `later` are
    all other counts since then. `total` and `control_sum` are those that the first fact that has them says.
    """

    def __init__(self) -> None:
        self.payments: dict[str, Payment] = {}
        self.total: int | None = None
        self.control_sum: Decimal | None = None
        self.is_contradictory = False
        self._stated: dict[str, Stated] = {}
        self.first_through: Counts | None = None
        self.later: list[Counts] = []
        self._final = 0

    def apply(self, fact: ObservedFact, finals: Collection[str]) -> None:
        self._note_message(fact)
        before = self.payments.get(fact.unit)
        if before is not None and fact.is_late:
            return
        after = _after(before, fact)
        if after == before:
            return
        self._final += (after.status in finals) - (before is not None and before.status in finals)
        self.payments[fact.unit] = after
        self._note_instruction(after.instruction, fact)
        if self.first_through is not None:
            self.later.append(self.counts())
        elif self.is_through:
            self.first_through = self.counts()

    @property
    def is_through(self) -> bool:
        """Whether all payments are there and final, and the message says nothing else."""
        return self.is_counted and self.adds_up

    @property
    def is_counted(self) -> bool:
        return self.total is not None and self._final == len(self.payments) == self.total and not self.is_contradictory

    @property
    def missing(self) -> int:
        """How many payments have no final status."""
        return max(self.total or 0, len(self.payments)) - self._final

    def counts(self) -> Counts:
        return count(self.payments.values(), self._stated, has_status=self.is_through)

    @property
    def adds_up(self) -> bool:
        """Whether there is no control sum, or all amounts are known and their sum is that."""
        amounts = [each.amount for each in self.payments.values() if each.amount is not None]
        are_known = len(amounts) == len(self.payments)
        return self.control_sum is None or (are_known and sum(amounts, Decimal()) == self.control_sum)

    def _note_message(self, fact: ObservedFact) -> None:
        total, control_sum = whole_number(fact.total), number(fact.control_sum)
        if self.total is None:
            self.total = total
        if self.control_sum is None:
            self.control_sum = control_sum
        self.is_contradictory |= total not in (None, self.total) or control_sum not in (None, self.control_sum)

    def _note_instruction(self, name: str | None, fact: ObservedFact) -> None:
        """Take over what a payment information says of itself: of each number the first that is valid."""
        if name is not None:
            known = self._stated.get(name, Stated())
            total = whole_number(fact.instruction_total) if known.total is None else known.total
            control_sum = number(fact.instruction_sum) if known.control_sum is None else known.control_sum
            self._stated[name] = Stated(total, control_sum)


def _after(before: Payment | None, fact: ObservedFact) -> Payment:
    amount, instruction = number(fact.amount), fact.instruction
    if instruction is not None and not 0 < len(instruction) <= _LONGEST_ID:
        instruction = _NOT_PROVIDED
    if before is not None:
        amount = before.amount if amount is None else amount
        instruction = before.instruction if instruction is None else instruction
    return Payment(fact.status, amount, instruction)
