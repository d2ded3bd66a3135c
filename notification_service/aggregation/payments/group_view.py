"""Groups as operators see them."""

import msgspec

from notification_service.aggregation.payments.head import MAX_INSTRUCTIONS, GroupState, Head, decode_head
from notification_service.aggregation.payments.report import (
    CONTRADICTION,
    Problem,
    count_unknown_amounts,
    find_contradictions,
    find_problems,
)
from resequencer.clock import Instant

_REMEDIES = {
    Problem.NO_TOTAL: "the group cannot complete by itself",
    Problem.CONTRADICTORY_TOTAL: "ask the sender which is right",
    Problem.EXCEEDED: "ask the sender whether the message is right",
    Problem.CONTROL_SUM: "ask the sender whether the message is right",
    Problem.AMOUNT_UNKNOWN: "look into the notifications of its payments, and ask the sender whether the message is right",
}
_SHOWN = 5
"""The contradictory payment informations that are named. They may be a hundred."""

NOT_THROUGH = (GroupState.OPEN, GroupState.INCOMPLETE)
_KEEPS_IT_OPEN = tuple(f"{each}:" for each in Problem)

_UNTIL = "; its report goes out at the deadline, or when you close it: resequencer groups close {} --because TEXT"


class StatusCount(msgspec.Struct, frozen=True):
    """`total` is the sum of the amounts, None if one is unknown."""

    status: str
    count: int
    total: str | None


class GroupView(msgspec.Struct, frozen=True):
    """`missing` is how many payments have no final status. `total` is what the message says, None if it does not.

    `problems` are sentences with a remedy. Those that begin with a `Problem` keep the group from being complete. `last_at` is
    the last change, `due_at` when the group changes by itself.
    """

    key: str
    message_id: str
    initiating_party: str
    entity: str | None
    state: GroupState
    total: int | None
    members: int
    final: int
    missing: int
    statuses: tuple[StatusCount, ...]
    problems: tuple[str, ...]
    first_at: Instant
    last_at: Instant
    due_at: Instant | None
    reports: int
    closed_by: str | None
    because: str | None

    @property
    def needs_person(self) -> bool:
        """Whether it is not through and has a problem, so that it cannot become complete by itself. Notes do not count."""
        return self.state in NOT_THROUGH and any(each.startswith(_KEEPS_IT_OPEN) for each in self.problems)

    def has_text(self, text: str) -> bool:
        """Whether the text is part of the key, of the message's id or of the initiating party, whatever its case."""
        return any(text.casefold() in each.casefold() for each in (self.key, self.message_id, self.initiating_party))


def find_described(key: str, head: bytes) -> GroupView | None:
    """As `describe`; None if this version cannot read the head, because a later one wrote it."""
    try:
        return describe(key, head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def describe(key: str, head: bytes) -> GroupView:
    """Return what operators see of a group.

    Raises:
        msgspec.DecodeError: The bytes are no head.
    """
    known = decode_head(head)
    return GroupView(
        key=key,
        message_id=known.message.OrgnlMsgId,
        initiating_party=known.who,
        entity=known.entity,
        state=known.state,
        total=known.total,
        members=known.members,
        final=known.final,
        missing=known.missing,
        statuses=tuple(
            StatusCount(name, each.count, None if each.unknown else each.total) for name, each in known.statuses.items()
        ),
        problems=_problems(key, known),
        first_at=known.first_at,
        last_at=known.last_at,
        due_at=known.due_at,
        reports=known.reports,
        closed_by=known.closed_by,
        because=known.because,
    )


def _problems(key: str, head: Head) -> tuple[str, ...]:
    until = _UNTIL.format(key) if head.state is GroupState.OPEN else ""
    problems = find_problems(head)
    found = [f"{problem}: {what}; {_REMEDIES[problem]}{until}" for problem, what in problems.items()]
    unknown = count_unknown_amounts(head)
    if unknown and Problem.AMOUNT_UNKNOWN not in problems:
        found.append(
            f"no-sum: payments without a known amount: {unknown}, so reports have no sum of their status; look"
            " into the notifications of its payments"
        )
    # Not every person may see what stands before a semicolon (notification_service/console/group_pages.py), so no name has one.
    contradictions = [f"{name.replace(';', ',')} {what}" for name, what in find_contradictions(head).items()]
    if contradictions:
        shown, more = contradictions[:_SHOWN], len(contradictions) - _SHOWN
        found.append(
            f"{CONTRADICTION}: {', and '.join(shown)}{f', and {more} more' if more > 0 else ''}; reports have no PmtInfSts"
            " there, and the group completes all the same; ask the sender whether the message is right"
        )
    if head.many_instructions:
        found.append(
            f"many-instructions: the message has more than {MAX_INSTRUCTIONS} payment informations, so reports have only the"
            " counts of the whole message; look into the notifications of its payments"
        )
    if head.too_late:
        found.append(
            f"too-late: statuses that came after the group had ended, and are in no report: {head.too_late}; look into the"
            " notifications of its payments, and keep groups longer (retention)"
        )
    return tuple(found)
