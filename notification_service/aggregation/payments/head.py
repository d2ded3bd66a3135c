"""The value of a group: its counts, and what has become of it. Bounded, however many payments the group has.

The unit is a hundred-thousandth of the currency: ISO 20022 allows an amount five digits of a fraction. Each amount has one plain
text: `0`, `12.50`, `0.00001`.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from enum import StrEnum

import msgspec

from notification_service.aggregation.payments.commands import StatusFact
from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED, Amount
from resequencer.clock import Instant

MAX_INSTRUCTIONS = 100
"""The payment informations of a message that are counted one by one. With more, none is."""


NO_PARTY = msgspec.Raw()


class GroupState(StrEnum):
    """`OPEN` until the first report. `INCOMPLETE`: the deadline has passed. `ENDED`: its members are forgotten."""

    OPEN = "open"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    CLOSED = "closed"
    ENDED = "ended"


class Tally(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """How many members have a status, the sum of their known amounts (a plain text), and how many of the amounts are unknown."""

    count: int
    total: str
    unknown: int


class Message(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The original message, with texts that are valid in a report."""

    OrgnlMsgId: str
    OrgnlMsgNmId: str
    OrgnlCreDtTm: str | None = None
    OrgnlNbOfTxs: str | None = None
    OrgnlCtrlSum: str | None = None


class Instruction(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A payment information: its own numbers, valid in a report, and how many of its members have each status.

    `total` is the sum of the known amounts of its members (a plain text), `unknown` how many of the amounts are unknown. The sum
    is None where a version that did not know it began to count.
    """

    counts: Mapping[str, int]
    OrgnlNbOfTxs: str | None = None
    OrgnlCtrlSum: str | None = None
    total: str | None = None
    unknown: int = 0


class Head(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, kw_only=True, tag_field="version", tag=1):
    """The head of a group as JSON, with `version` 1 of the format. Statuses and payment informations are in alphabetical order.

    `who` is the initiating party as a text and `party` its InitgPty, encoded. `total` is the NbOfTxs; `other_total` and
    `other_sum` are the first that contradict those of `message`. `final` of the `members` have a final status.

    `last_at` is the last change: a status that counted, a report or a close; instants never go back. `amend_at` is when a change
    after a report is reported. `reports` is the number of the last report, and `reported` a hash of its content. `is_swept` once
    the members of an ended group are deleted. `too_late` counts the statuses after the end, the last of them at
    `too_late_place` (partition and offset).
    """

    state: GroupState = GroupState.OPEN
    message: Message
    who: str
    first_at: Instant
    last_at: Instant
    party: msgspec.Raw = NO_PARTY
    entity: str | None = None
    total: int | None = None
    other_total: str | None = None
    other_sum: str | None = None
    members: int = 0
    final: int = 0
    statuses: Mapping[str, Tally] = {}
    instructions: Mapping[str, Instruction] = {}
    many_instructions: bool = False
    due_at: Instant | None = None
    amend_at: Instant | None = None
    reports: int = 0
    reported: str = ""
    closed_by: str | None = None
    because: str | None = None
    ended_at: Instant | None = None
    is_swept: bool = False
    too_late: int = 0
    too_late_place: tuple[int, int] | None = None

    @property
    def is_all_there(self) -> bool:
        """Whether as many payments have come as the message says."""
        return self.total is not None and self.members >= self.total

    @property
    def missing(self) -> int:
        """How many payments have no final status, as far as is known."""
        return max(self.total or 0, self.members) - self.final


class _Reported(msgspec.Struct, frozen=True, gc=False):
    """A head as far as it says how many reports there were."""

    reports: int = 0


encode_head = msgspec.json.Encoder().encode
decode_head = msgspec.json.Decoder(Head).decode
_decode_reported = msgspec.json.Decoder(_Reported).decode


def reports_of(head: bytes | None) -> int:
    """Return the number of the last report, without decoding the whole head."""
    return 0 if head is None else _decode_reported(head).reports


_DIGITS = 5
_UNITS = 10**_DIGITS
_CENTS = 1_000
_PLAIN = re.compile(r"(?:0|[1-9][0-9]{0,12})(?:\.(?:[0-9][1-9]|[1-9]0|[0-9]{2,4}[1-9]))?")

_kind = TYPES["ActiveOrHistoricCurrencyAndAmount"]
assert isinstance(_kind, Amount)
_conform_amount = _kind.amount.conform


def find_plain(text: str) -> str | None:
    """Return the plain text of an amount. None if ISO 20022 allows no such amount: then it is unknown."""
    if _PLAIN.fullmatch(text):
        return text
    valid = _conform_amount(text)
    return None if valid is None else plain_of(int(Decimal(valid) * _UNITS))


def units_of(plain: str) -> int:
    """Return the hundred-thousandths of a plain text."""
    whole, _, fraction = plain.partition(".")
    return int(whole + fraction.ljust(_DIGITS, "0"))


def plain_of(units: int) -> str:
    """Return the plain text of hundred-thousandths."""
    whole, fraction = divmod(units, _UNITS)
    if not fraction:
        return str(whole)
    cents, remainder = divmod(fraction, _CENTS)
    return f"{whole}.{fraction:05}".rstrip("0") if remainder else f"{whole}.{cents:02}"


_conform = TYPES["Max35Text"].conform


class Member(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The tag is the version of the format. `partition` and `offset` are the place of its command.

    `amount` is a plain text, `instruction` the OrgnlPmtInfId. They are None where no fact has them.
    """

    status: str
    amount: str | None
    currency: str | None
    instruction: str | None
    partition: int
    offset: int


encode_member = msgspec.json.Encoder().encode
decode_member = msgspec.json.Decoder(Member).decode


def is_repeat(member: Member, partition: int, offset: int) -> bool:
    """Whether the command at this place was applied. Places in another partition say nothing, and count."""
    return member.partition == partition and offset <= member.offset


def next_member(before: Member | None, fact: StatusFact, partition: int, offset: int) -> Member:
    """Return the member after a fact. What a fact does not say remains: a payment does not lose its amount."""
    amount = None if fact.amount is None else find_plain(fact.amount)
    currency = None if amount is None else fact.currency
    instruction = find_instruction_id(fact)
    if before is not None:
        if amount is None:
            amount, currency = before.amount, before.currency
        instruction = before.instruction if instruction is None else instruction
    return Member(fact.status, amount, currency, instruction, partition, offset)


def find_instruction_id(fact: StatusFact) -> str | None:
    """Return the OrgnlPmtInfId of a fact, NOTPROVIDED if it is invalid, None if the fact names no payment information."""
    if fact.instruction is None:
        return None
    valid = _conform(fact.instruction.OrgnlPmtInfId)
    return valid if isinstance(valid, str) else NOT_PROVIDED
