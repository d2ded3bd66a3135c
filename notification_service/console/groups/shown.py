"""Groups as a person may see them: who sent a message, and what it is worth, needs the role `payments`."""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from notification_service.aggregation.payments.group_view import GroupView, StatusCount, describe
from notification_service.aggregation.payments.head import GroupState, Head, decode_head, decode_member, plain_of, units_of
from notification_service.aggregation.payments.report import CONTRADICTION, Problem
from notification_service.aggregation.view import StoreView
from notification_service.console.access.identity import Identity
from notification_service.console.access.role import Role
from resequencer.notification import group_report_id

_HIDDEN = "needs the role payments"
_OF_SUMS = (f"{Problem.CONTROL_SUM}:", f"{Problem.CONTRADICTORY_TOTAL}:", f"{CONTRADICTION}:")
_MAX_REPORTS = 20


class Segment(NamedTuple):
    """A part of a bar: the payments of a status, or with `status` None those that are not there. The width is in percent."""

    status: str | None
    payments: int
    x: float
    width: float
    kind: str


class GroupReport(msgspec.Struct, frozen=True):
    """A report that was sent: its number, from 1, and its `GrpHdr/MsgId`, which is the header `notification-id`."""

    number: int
    message_id: str


class InstructionCount(msgspec.Struct, frozen=True):
    """A payment information of the message: how many payments have each status, and what the message says of it.

    `total` is its NbOfTxs, `control_sum` its CtrlSum; null if the message does not say, or without the role payments.
    """

    id: str
    statuses: dict[str, int]
    total: str | None
    control_sum: str | None


class GroupMember(msgspec.Struct, frozen=True):
    """A payment of a group; `amount` is null if it is unknown, or without the role payments."""

    unit: str
    status: str
    amount: str | None
    currency: str | None
    instruction: str | None


class WholeGroup(NamedTuple):
    """All of a group but its members."""

    group: GroupView
    reports: tuple[GroupReport, ...]
    instructions: tuple[InstructionCount, ...]
    message_name: str
    created: str | None
    control_sum: str | None
    total_sum: str | None


def group_for(identity: Identity, group: GroupView) -> GroupView:
    """Return the group as this person may see it."""
    if identity.may(Role.PAYMENTS):
        return group
    statuses = tuple(StatusCount(each.status, each.count, None) for each in group.statuses)
    return replace(
        group, initiating_party=_HIDDEN, statuses=statuses, problems=tuple(_without_sums(each) for each in group.problems)
    )


def find_group(identity: Identity, view: StoreView, key: str) -> WholeGroup | None:
    """Return the group as this person may see it, None if there is none.

    Raises:
        The errors of the view.
    """
    found = view.find(key)
    if found is None:
        return None
    head, group, may_see = decode_head(found.body), describe(key, found.body), identity.may(Role.PAYMENTS)
    first = max(1, head.reports - _MAX_REPORTS + 1)
    return WholeGroup(
        group_for(identity, group),
        tuple(GroupReport(number, group_report_id(key, number)) for number in range(head.reports, first - 1, -1)),
        tuple(
            InstructionCount(name, dict(each.counts), each.OrgnlNbOfTxs, each.OrgnlCtrlSum if may_see else None)
            for name, each in head.instructions.items()
        ),
        head.message.OrgnlMsgNmId,
        head.message.OrgnlCreDtTm,
        head.message.OrgnlCtrlSum if may_see else None,
        _sum_of(head) if may_see else None,
    )


def find_members(
    identity: Identity, view: StoreView, key: str, after: str, most: int
) -> tuple[tuple[GroupMember, ...], str | None]:
    """Return up to `most` members behind `after`, and the `after` of those that follow; None if none follow."""
    may_see = identity.may(Role.PAYMENTS)
    found = view.members(key, after, most + 1)
    members = []
    for unit, body in found[:most]:
        each = decode_member(body)
        amount, currency = (each.amount, each.currency) if may_see else (None, None)
        members.append(GroupMember(unit, each.status, amount, currency, each.instruction))
    return tuple(members), members[-1].unit if len(found) > most else None


def bar_of(group: GroupView) -> tuple[Segment, ...]:
    """Return the bar of a group: its statuses by name, and at the end what is missing."""
    seen = sum(each.count for each in group.statuses)
    whole = max(group.total or 0, seen, 1)
    counts = [(each.status, each.count) for each in group.statuses]
    left = (group.total or seen) - seen
    parts: list[tuple[str | None, int]] = [*counts, *([(None, left)] if left > 0 else [])]
    segments, x = [], 0.0
    for status, count in parts:
        width = 100 * count / whole
        segments.append(Segment(status, count, round(x, 3), round(width, 3), kind_of(status)))
        x += width
    return tuple(segments)


def kind_of(status: str | None) -> str:
    """Return how a status is coloured: `done`, `refused`, `under-way` or `absent`."""
    if status is None:
        return "absent"
    if status in ("RJCT", "CANC", "BLCK"):
        return "refused"
    return "done" if status in ("ACCC", "ACSC", "ACWC") else "under-way"


def tone_of(group: GroupView) -> str:
    """Return the style of a group's state."""
    if group.state in (GroupState.OPEN, GroupState.INCOMPLETE):
        return "problem" if group.state is GroupState.INCOMPLETE else "attention"
    return "ok"


def _without_sums(problem: str) -> str:
    """Return a problem without what it says about sums."""
    if not problem.startswith(_OF_SUMS):
        return problem
    name, _, rest = problem.partition(": ")
    return f"{name}: what differs {_HIDDEN}; {rest.partition('; ')[2]}"


def _sum_of(head: Head) -> str | None:
    """Return the sum of all payments that have come, as ISO 20022 has it: whatever their currencies. None if one is unknown."""
    if any(each.unknown for each in head.statuses.values()):
        return None
    return plain_of(sum(units_of(each.total) for each in head.statuses.values()))
