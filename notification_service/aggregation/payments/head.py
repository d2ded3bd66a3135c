"""The value of a group: its counts, and what has become of it. Bounded, however many payments the group has."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from resequencer.clock import Instant

MOST_INSTRUCTIONS = 100
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
    after a report is reported. `reports` is the number of the last report, and `reported` a hash of what it said. `is_swept` once
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
    """Return the number of the last report, without reading the rest of the head."""
    return 0 if head is None else _decode_reported(head).reports
