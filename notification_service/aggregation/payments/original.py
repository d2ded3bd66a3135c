"""What facts say of the original message, as far as it is valid in a report, and what they contradict."""

from decimal import Decimal
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from notification_service.aggregation.payments.commands import StatedInstruction, StatedMessage, StatusFact
from notification_service.aggregation.payments.head import Head, Message
from notification_service.payments.iso20022.pain002_schema import ORIGINAL_GROUP_HEADER, ORIGINAL_PAYMENT_INSTRUCTION, PARTY
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED
from resequencer.clock import Instant
from resequencer.errors import Undecodable

_LONGEST_TEXT = 64
"""The schema limits the digits of numbers, but neither their zeros nor the fraction of a second."""
_LONGEST_PARTY = 8 * 1024
"""In bytes. The schema allows a party any number of ids. Of a longer one only the name is repeated."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def first_head(fact: StatusFact, stated: StatedMessage, now: Instant) -> Head:
    """Return the head of a group without members."""
    valid: dict[str, Any] = ORIGINAL_GROUP_HEADER.conform(_short(stated)) or {}
    message = msgspec.convert({"OrgnlMsgId": NOT_PROVIDED, "OrgnlMsgNmId": NOT_PROVIDED} | valid, Message)
    total = None if message.OrgnlNbOfTxs is None else int(message.OrgnlNbOfTxs)
    return _with_party(Head(message=message, total=total, who=NOT_PROVIDED, first_at=now, last_at=now, entity=fact.entity), fact)


def with_original(head: Head, fact: StatusFact, stated: StatedMessage) -> Head:
    """Return the head with what it did not know of the message, and with what contradicts it."""
    if fact.party and not head.party:
        head = _with_party(head, fact)
    if head.entity is None and fact.entity is not None:
        head = replace(head, entity=fact.entity)
    known = head.message
    if stated.OrgnlNbOfTxs == known.OrgnlNbOfTxs and stated.OrgnlCtrlSum == known.OrgnlCtrlSum:
        return head  # So it is for all facts but the first, where the messages are right.
    valid = ORIGINAL_GROUP_HEADER.conform(_short(stated)) or {}
    return _with_sum(_with_total(head, valid.get("OrgnlNbOfTxs")), valid.get("OrgnlCtrlSum"))


def valid_numbers(stated: StatedInstruction) -> tuple[str | None, str | None]:
    """Return OrgnlNbOfTxs and OrgnlCtrlSum of a payment information, None where they are missing or invalid."""
    valid: dict[str, Any] = ORIGINAL_PAYMENT_INSTRUCTION.conform(_short(stated)) or {}
    return valid.get("OrgnlNbOfTxs"), valid.get("OrgnlCtrlSum")


def _with_total(head: Head, stated: Any) -> Head:
    if stated is None or (head.total is not None and int(stated) == head.total):
        return head
    if head.total is None:
        return replace(head, total=int(stated), message=replace(head.message, OrgnlNbOfTxs=stated))
    return head if head.other_total is not None else replace(head, other_total=stated)


def _with_sum(head: Head, stated: Any) -> Head:
    known = head.message.OrgnlCtrlSum
    if stated is None or (known is not None and Decimal(stated) == Decimal(known)):
        return head
    if known is None:
        return replace(head, message=replace(head.message, OrgnlCtrlSum=stated))
    return head if head.other_sum is not None else replace(head, other_sum=stated)


def _with_party(head: Head, fact: StatusFact) -> Head:
    """Return the head with the party of a fact.

    Raises:
        Undecodable: The party is nested too deep to be read.
    """
    if not fact.party:
        return head
    try:
        valid: Any = PARTY.conform(_decode(fact.party))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Undecodable(f"the initiating party cannot be read: {error}") from error
    if valid is None:
        return head
    encoded = _encode(valid)
    if len(encoded) > _LONGEST_PARTY:
        encoded = _encode({"Nm": valid.get("Nm", NOT_PROVIDED)})
    return replace(head, party=msgspec.Raw(encoded), who=_who(valid))


def _who(party: dict[str, Any]) -> str:
    """Return the party's name, else the first of its ids, in the order in which a customer is looked up."""
    if "Nm" in party:
        return str(party["Nm"])
    for identities in party.get("Id", {}).values():
        for found in (identities.get("AnyBIC"), identities.get("LEI"), *(each.get("Id") for each in identities.get("Othr", ()))):
            if found is not None:
                return str(found)
    return NOT_PROVIDED


def _short(stated: StatedMessage | StatedInstruction) -> dict[str, str]:
    return {name: text for name, text in asdict(stated).items() if text is not None and len(text) <= _LONGEST_TEXT}
