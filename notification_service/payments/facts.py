"""The facts of an envelope: the status of each of its process objects, notified or not (docs/contract.md, section 15)."""

from __future__ import annotations

import msgspec

from guardian.headers import AMOUNT, GROUP_ID, GROUP_TOTAL, MEMBER
from notification_service.payments.envelope import DataEnvelope
from notification_service.payments.iso20022.part_reader import Fields
from notification_service.payments.iso20022.simple_types import NOT_PROVIDED
from resequencer.handler import Marks
from resequencer.notification import Fact, short_digest
from resequencer.record import Headers

LARGEST_PARTY_BYTES = 16 * 1024
"""The largest encoded initiating party that a fact repeats. The schema allows any number of identifications; facts are small."""

_read_text = msgspec.json.Decoder(str).decode


class _Money(msgspec.Struct, gc=False):
    Ccy: str
    value: str


class _Equivalent(msgspec.Struct, gc=False):
    Amt: _Money | None = None


class _Amount(msgspec.Struct, gc=False):
    InstdAmt: _Money | None = None
    EqvtAmt: _Equivalent | None = None


_read_amount = msgspec.json.Decoder(_Amount).decode


class Membership(msgspec.Struct, frozen=True, gc=False):
    """What is known of a payment's group and amount.

    `message` identifies the group within a processing entity; None if the payment belongs to no group. `total` is how many
    payments the group has, as the message says it: digits. `amount` is the text of the number, with its `currency`.
    `original`, `instruction` and `initiating_party` are JSON objects as the report repeats them; None without a group, and a
    party also if there is none or it is larger than `LARGEST_PARTY_BYTES`.
    """

    message: bytes | None = None
    total: str | None = None
    amount: str | None = None
    currency: str | None = None
    original: msgspec.Raw | None = None
    instruction: msgspec.Raw | None = None
    initiating_party: msgspec.Raw | None = None

    def find_group(self, entity: str | None) -> str | None:
        """Return the id of the group: 32 characters, A-Z and 2-7; None if the payment belongs to none.

        It is a digest of the processing entity (empty if none is known), the initiating party as JSON, MsgId and CreDtTm.
        """
        return None if self.message is None else short_digest(b"%b\x00%b" % ((entity or "").encode(), self.message))

    def headers(self, group: str | None) -> Headers:
        """Return the headers `group-id`, `group-total` and `amount`, those that are known."""
        headers = (
            (GROUP_ID, group),
            (GROUP_TOTAL, None if group is None else self.total),
            (AMOUNT, None if self.amount is None else f"{self.amount} {self.currency}"),
        )
        return tuple([(name, value.encode()) for name, value in headers if value is not None])


NO_MEMBERSHIP = Membership()
"""That of a payment of which nothing can be read."""


def membership_of(header: Fields, amount: msgspec.Raw | None, group: bytes, instruction: bytes) -> Membership:
    """Return the membership of a payment. `header` has the valid fields of the message's GrpHdr, `amount` is the transaction's.

    `group` and `instruction` are the members of OrgnlGrpInfAndSts and of OrgnlPmtInfAndSts. A message without an id, or with
    the id NOTPROVIDED, is no group.
    """
    number, currency = _money(amount)
    message_id = _text_of(header, "MsgId")
    if message_id is None or message_id == NOT_PROVIDED:
        return Membership(amount=number, currency=currency)
    party = header.get("InitgPty")
    identity = (bytes(party or b""), message_id.encode(), (_text_of(header, "CreDtTm") or "").encode())
    return Membership(
        b"\x00".join(identity),
        _text_of(header, "NbOfTxs"),
        number,
        currency,
        msgspec.Raw(b"{%b}" % group),
        msgspec.Raw(b"{%b}" % instruction),
        None if party is None or len(party) > LARGEST_PARTY_BYTES else party,
    )


def _text_of(fields: Fields, name: str) -> str | None:
    value = fields.get(name)
    return None if value is None else _read_text(value)


def _money(amount: msgspec.Raw | None) -> tuple[str | None, str | None]:
    """Return the instructed amount, else the equivalent one, and its currency."""
    if amount is None:
        return None, None
    read = _read_amount(amount)
    money = read.InstdAmt or (None if read.EqvtAmt is None else read.EqvtAmt.Amt)
    return (None, None) if money is None else (money.value, money.Ccy)


MAX_HEADER_BYTES = 1_024
"""The most bytes of a header's value; an id has 256 characters. Names of events may be longer in foreign envelopes."""

_MAX_CHARACTERS = 256


class _Status(msgspec.Struct, tag_field="type", tag="status", omit_defaults=True, gc=False):
    """The value of a fact, in the order of its members."""

    unit: str
    status: str
    late: bool = False
    incomplete: str | None = None
    amount: str | None = None
    currency: str | None = None
    entity: str | None = None
    original: msgspec.Raw | None = None
    instruction: msgspec.Raw | None = None
    initiating_party: msgspec.Raw | None = msgspec.field(default=None, name="initiatingParty")


_encode = msgspec.json.Encoder().encode


class EnvelopeFacts:
    """Makes the facts of one envelope. `group_headers` are those that its notifications have, too."""

    def __init__(self, envelope: DataEnvelope, entity: str | None, membership: Membership, marks: Marks) -> None:
        self._envelope = envelope
        self._entity = entity
        self._membership = membership
        self._marks = marks
        self._group = membership.find_group(entity)
        self.group_headers = membership.headers(self._group)

    def make(self, status: str, headers: Headers) -> Fact:
        """Return the fact that a process object has this status. `headers` are those of the contract, with `group_headers`.

        Its key is the group, or the unit if it has none. A value is one line of JSON; it and the headers have 32 KiB at most.
        """
        unit, known = self._envelope.unit, self._membership
        incomplete = self._marks.incomplete
        value = _Status(
            unit,
            status,
            self._marks.late,
            None if incomplete is None else incomplete[:_MAX_CHARACTERS],
            known.amount,
            known.currency,
            None if self._entity is None else self._entity[:_MAX_CHARACTERS],
            known.original,
            known.instruction,
            known.initiating_party,
        )
        named = ((MEMBER, unit.encode()), *headers)
        return Fact(self._group or unit, _encode(value), _bounded(named), self._envelope.record.origin)


def _bounded(headers: Headers) -> Headers:
    if all(len(value) <= MAX_HEADER_BYTES for _, value in headers):
        return headers
    return tuple((name, value[:MAX_HEADER_BYTES].decode(errors="ignore").encode()) for name, value in headers)
