"""The value of a member: the latest status of one payment."""

import msgspec

from notification_service.aggregation.payments.amounts import find_plain
from notification_service.aggregation.payments.commands import StatusFact
from notification_service.payments.iso20022.pain002_schema import TYPES
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED

_conform = TYPES["Max35Text"].conform


class Member(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The tag is the version of the format. `partition` and `offset` are the place of the command that said it.

    `amount` is a plain text, `instruction` the OrgnlPmtInfId. They are None where no fact has said them.
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
