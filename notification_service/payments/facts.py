"""The facts of an envelope: the status of each of its process objects, notified or not (docs/contract.md, section 15)."""

import msgspec

from guardian.headers import MEMBER
from notification_service.payments.membership import Membership
from resequencer.envelope import DataEnvelope
from resequencer.fact import Fact
from resequencer.handler import Marks
from resequencer.record import Headers

MOST_HEADER_BYTES = 1_024
"""The most bytes of a header's value; an id has 256 characters. Names of events may be longer in foreign envelopes."""

_MOST_CHARACTERS = 256


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
            None if incomplete is None else incomplete[:_MOST_CHARACTERS],
            known.amount,
            known.currency,
            None if self._entity is None else self._entity[:_MOST_CHARACTERS],
            known.original,
            known.instruction,
            known.initiating_party,
        )
        named = ((MEMBER, unit.encode()), *headers)
        return Fact(self._group or unit, _encode(value), _bounded(named), self._envelope.record.origin)


def _bounded(headers: Headers) -> Headers:
    if all(len(value) <= MOST_HEADER_BYTES for _, value in headers):
        return headers
    return tuple((name, value[:MOST_HEADER_BYTES].decode(errors="ignore").encode()) for name, value in headers)
