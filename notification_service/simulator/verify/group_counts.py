"""Counts of the payments of a message, worked out from scratch.

The rules are those of docs/contract.md, written a second time: what is compared must not share its code.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal
from typing import NamedTuple

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
