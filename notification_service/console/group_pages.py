"""Groups, as pages and operations of the API: the payments of messages, what is missing since when, and what an operator closes.

Who sent a message, and what it is worth, needs the role `payments`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.aggregation.payments.group_view import GroupView, StatusCount, describe, find_described
from notification_service.aggregation.payments.head import GroupState, Head, decode_head, decode_member, plain_of, units_of
from notification_service.aggregation.payments.report import CONTRADICTION, Problem
from notification_service.aggregation.view import StoreView
from notification_service.console.access.identity import Identity, Role
from notification_service.console.access.layer import route
from notification_service.console.context import (
    Because,
    Console,
    Operation,
    change_of,
    form_route,
    identity_of,
    known_parameters,
    read_choice,
    read_page_number,
    reason_of,
)
from notification_service.console.csv_files import MAX_ROWS, csv_answer, time_cell
from notification_service.console.groups import GroupFilter, Groups, GroupTotals
from notification_service.console.search.find import NOT_COUNTED, GroupsFound
from notification_service.console.sources import is_old
from notification_service.console.stores.stream import EventsQuery, EventStream, listen
from notification_service.console.stores.watch import StoreFreshness
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.notification import group_report_id
from resequencer.printable import printable

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


class GroupAnswer(msgspec.Struct, frozen=True):
    """A group with its payment informations, and the last 20 of its reports, the latest first."""

    group: GroupView
    instructions: tuple[InstructionCount, ...]
    reports: tuple[GroupReport, ...]
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


def find_group(identity: Identity, view: StoreView, key: str) -> GroupAnswer | None:
    """Return the group as this person may see it, None if there is none.

    Raises:
        The errors of the view.
    """
    found = view.find(key)
    if found is None:
        return None
    head, group, may_see = decode_head(found.body), describe(key, found.body), identity.may(Role.PAYMENTS)
    first = max(1, head.reports - _MAX_REPORTS + 1)
    return GroupAnswer(
        group_for(identity, group),
        tuple(
            InstructionCount(name, dict(each.counts), each.OrgnlNbOfTxs, each.OrgnlCtrlSum if may_see else None)
            for name, each in head.instructions.items()
        ),
        tuple(GroupReport(number, group_report_id(key, number)) for number in range(head.reports, first - 1, -1)),
        head.message.OrgnlMsgNmId,
        head.message.OrgnlCreDtTm,
        head.message.OrgnlCtrlSum if may_see else None,
        _sum_of(head) if may_see else None,
    )


def find_members(
    identity: Identity, view: StoreView, key: str, after: str, limit: int
) -> tuple[tuple[GroupMember, ...], str | None]:
    """Return up to `limit` members behind `after`, and the `after` of those that follow; None if none follow."""
    may_see = identity.may(Role.PAYMENTS)
    found = view.members(key, after, limit + 1)
    members = []
    for unit, body in found[:limit]:
        each = decode_member(body)
        amount, currency = (each.amount, each.currency) if may_see else (None, None)
        members.append(GroupMember(unit, each.status, amount, currency, each.instruction))
    return tuple(members), members[-1].unit if len(found) > limit else None


def bar_of(group: GroupView) -> tuple[Segment, ...]:
    """Return the bar of a group: its statuses by name, and at the end what is missing."""
    seen = sum(each.count for each in group.statuses)
    whole = max(group.total or 0, seen, 1)
    counts = [(each.status, each.count) for each in group.statuses]
    absent = (group.total or seen) - seen
    parts: list[tuple[str | None, int]] = [*counts, *([(None, absent)] if absent > 0 else [])]
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
    name, _, remainder = problem.partition(": ")
    return f"{name}: what differs {_HIDDEN}; {remainder.partition('; ')[2]}"


def _sum_of(head: Head) -> str | None:
    """Return the sum of all payments that have come, as ISO 20022 has it: whatever their currencies. None if one is unknown."""
    if any(each.unknown for each in head.statuses.values()):
        return None
    return plain_of(sum(units_of(each.total) for each in head.statuses.values()))


_MAX_NAME = 200
_MAX_NAMED = 20
CLOSABLE = (GroupState.OPEN, GroupState.INCOMPLETE)
_GIVEN_UP = "the search took too long and was given up, so there may be others; choose a state, too"
_NOT_ENABLED = "the payments of messages are not counted: aggregation.enabled is false"


class ListedGroups(NamedTuple):
    """The first groups of a filter as this person may see them. `problem` says why it is not all that is known.

    With `has_more` others may follow: of those that were asked for, one may be gone since the index was made.
    """

    groups: tuple[GroupView, ...]
    matching: int
    is_counted: bool
    problem: str | None
    has_more: bool = False


def groups_of(console: Console) -> Groups:
    """Return the groups; an answer 404 where they are not counted."""
    if console.groups is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, _NOT_ENABLED)
    return console.groups


def list_groups(console: Console, request: Request, wanted: GroupFilter, limit: int, offset: int = 0) -> ListedGroups:
    """Return up to `limit` groups of a filter behind `offset`, as they are now: the index may be some seconds older."""
    groups, identity = groups_of(console), identity_of(request)
    try:
        found = groups.watch.find(wanted._replace(sees_parties=identity.may(Role.PAYMENTS)), limit, offset)
        with groups.watch.reading() as view:
            heads = [(key, head.body) for key in found.keys if (head := view.find(key)) is not None]
    except ResequencerError as error:
        return ListedGroups((), 0, is_counted=True, problem=printable(str(error)))
    described = [group for key, head in heads if (group := find_described(key, head)) is not None]
    problem = None if found.is_whole else _GIVEN_UP
    groups_for = tuple(group_for(identity, each) for each in described)
    return ListedGroups(groups_for, found.matching, found.is_counted, problem, len(found.keys) == limit)


def get_group(console: Console, request: Request, key: str) -> GroupAnswer:
    """Return the group of a key or of a message's id; an answer 404 if there is none, 503 while nothing could be read yet."""
    groups = groups_of(console)
    freshness = groups.watch.look()
    with _answered(key), groups.watch.reading() as view:
        found = find_group(identity_of(request), view, _find_key(groups, view, key))
    if found is None:
        raise _missing(freshness)
    return found


def get_members(
    console: Console, request: Request, key: str, after: str, limit: int
) -> tuple[tuple[GroupMember, ...], str | None]:
    """Return members of a group and the `after` of the next ones; an answer 404 if there is no such group."""
    groups = groups_of(console)
    with _answered(key), groups.watch.reading() as view:
        found = _find_key(groups, view, key)
        if view.find(found) is None:
            raise _missing(groups.watch.look())
        return find_members(identity_of(request), view, found, after, limit)


def _find_key(groups: Groups, view: StoreView, wanted: str) -> str:
    """Return the key, which a message's id stands for if only one group has it; an answer 409 if several have."""
    if view.find(wanted) is not None:
        return wanted
    try:
        found = groups.watch.find(GroupFilter(message_id=wanted), 2)
    except ResequencerError:
        return wanted
    if len(found.keys) > 1:
        problem = "several groups have this message id; search for it among the groups, and give the key of one"
        raise HTTPException(HTTPStatus.CONFLICT, problem)
    return found.keys[0] if found.keys and found.is_whole else wanted


def find_groups(console: Console, text: str) -> GroupsFound:
    """Return the groups with this key, and those whose message has this id. Never raises."""
    groups = console.groups
    if groups is None:
        return GroupsFound((), NOT_COUNTED)
    freshness = groups.watch.look()
    try:
        with groups.watch.reading() as view:
            known = groups.watch.find(GroupFilter(message_id=text), _MAX_NAMED)
            keys = dict.fromkeys((text, *known.keys))
            heads = [(key, head.body) for key in keys if (head := view.find(key)) is not None]
    except ResequencerError as error:
        return GroupsFound((), f"could not be read: {printable(str(error))}")
    found = tuple(group for key, head in heads if (group := find_described(key, head)) is not None)
    if freshness.as_of is None:
        return GroupsFound(
            found, f"not read yet: {printable(freshness.problem or 'they are being read')}; search again in a moment"
        )
    part = "" if known.is_whole else "; the time for it is over, so not all were searched"
    return GroupsFound(found, f"all groups by key and by message id{part}")


class CloseBecause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why the group is closed."""

    because: Because


class GivenAnswer(msgspec.Struct, frozen=True):
    """The command is given; a worker that runs executes it. The group's state shows when it is done."""

    is_given: bool


def close_group(console: Console, request: Request, body: CloseBecause) -> GivenAnswer:
    """Write who does it, then give the command. A group that has been reported in full is refused with 409."""
    key = _closable(console, request).key
    because = reason_of(body.because)
    console.audit_log.note(request, "groups.close", group=key, because=because)
    groups_of(console).close_group(key, identity_of(request).name[:_MAX_NAME], because)
    return GivenAnswer(is_given=True)


def _closable(console: Console, request: Request) -> GroupView:
    """Return the group, which can be closed; an answer 409 if it has been reported in full."""
    group = get_group(console, request, _key(request)).group
    if group.state not in CLOSABLE:
        raise HTTPException(HTTPStatus.CONFLICT, f"the group is {group.state.value} already; it cannot be closed")
    return group


def _missing(freshness: StoreFreshness) -> HTTPException:
    if freshness.as_of is None:
        reason = f": {freshness.problem}" if freshness.problem else ""
        return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"the groups were not read yet{reason}; try again in a moment")
    return HTTPException(HTTPStatus.NOT_FOUND, "no group has this key or message id")


@contextmanager
def _answered(key: str) -> Iterator[None]:
    """A value that this version cannot read is no failure of the console."""
    try:
        yield
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = (
            f"the values of group {printable(key)[:80]} cannot be read ({printable(str(error))}); a later version wrote them"
        )
        raise HTTPException(HTTPStatus.NOT_FOUND, problem) from error


class GroupsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which groups to list: all that is given must hold. `text` is part of the key or of the message's id.

    With the role payments it may also be part of the initiating party. `problems`: only those that need a person. `order` is
    `state`, what is not through first, or `newest`.
    """

    state: GroupState | None = None
    problems: Literal["true", "false"] = "false"
    text: Annotated[str, Meta(max_length=256)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 200
    order: Literal["state", "newest"] = "state"


class GroupsAnswer(msgspec.Struct, frozen=True):
    """Groups. In the order `state`: those that are not through first, the oldest at the top, then the latest change at the top.

    Instants within groups are in ms since 1970. `matching` counts what the filter lets through; if not `is_counted`, there are
    more. `totals` are about all groups. `as_of` is null if they were never read; `problem` says why they are not newer, and since
    when.
    """

    groups: tuple[GroupView, ...]
    matching: int
    is_counted: bool
    totals: GroupTotals | None
    as_of: str | None
    problem: str | None
    problem_since: str | None


class MembersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is that of the page before; the order is by the unit's id."""

    after: Annotated[str, Meta(max_length=1_024)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class MembersAnswer(msgspec.Struct, frozen=True):
    """Payments of a group. `after` is the parameter for the next page, null on the last one."""

    members: tuple[GroupMember, ...]
    after: str | None


def group_operations(console: Console) -> list[Operation]:
    def groups(request: Request, query: GroupsQuery) -> GroupsAnswer:
        watch = groups_of(console).watch
        freshness = watch.look()
        state, is_newest_first = "" if query.state is None else query.state.value, query.order == _NEWEST
        wanted = GroupFilter(state, query.problems == "true", query.text, is_newest_first=is_newest_first)
        found = list_groups(console, request, wanted, query.limit)
        return GroupsAnswer(
            found.groups,
            found.matching,
            found.is_counted,
            watch.totals,
            None if freshness.as_of is None else instant_text(freshness.as_of),
            found.problem or freshness.problem,
            None if freshness.since is None else instant_text(freshness.since),
        )

    def events(request: Request, query: EventsQuery) -> EventStream:
        return listen(console.listening, request, groups_of(console), query)

    def group(request: Request, query: msgspec.Struct) -> GroupAnswer:
        del query
        return get_group(console, request, _key(request))

    def members(request: Request, query: MembersQuery) -> MembersAnswer:
        return MembersAnswer(*get_members(console, request, _key(request), query.after, query.limit))

    close = partial(close_group, console)
    events_summary = "The completions of groups as they come, as server-sent events"
    return [
        Operation("/groups", "groups", groups, GroupsAnswer, "The groups, what is not through first", GroupsQuery),
        Operation("/groups/events", "group-events", events, str(EventStream.media_type), events_summary, EventsQuery),
        Operation("/groups/{key}", "group", group, GroupAnswer, "A group: the payments of a message"),
        Operation("/groups/{key}/members", "group-members", members, MembersAnswer, "The payments of a group", MembersQuery),
        change_of("/groups/{key}/close", "close-group", close, GivenAnswer, "End a group that cannot complete", CloseBecause),
    ]


def _key(request: Request) -> str:
    return str(request.path_params["key"])


_SHOWN = 100
_SHOWN_MEMBERS = 100
_LONGEST = 256
_PROBLEMS, _NEWEST = "problems", "newest"


def group_routes(console: Console) -> list[Route]:
    pages = _GroupPages(console)
    return [
        route("/groups", pages.list, name="groups"),
        route("/groups.csv", pages.file, name="groups-csv"),
        route("/groups/{key}", pages.group, name="group"),
        route("/groups/{key}/closing", pages.closing, needs=Role.OPERATOR, name="closing-group"),
        form_route(console, "/groups/{key}/close", CloseBecause, partial(close_group, console), pages.closed),
    ]


_AT_ONCE = 1_000
_STATES = (*(each.value for each in GroupState), _PROBLEMS)
_COLUMNS = (
    *("key", "message_id", "initiating_party", "state", "total", "seen", "final", "missing"),
    *("first_at", "last_at", "due_at", "problems"),
)


def _filter(given: Mapping[str, str]) -> GroupFilter:
    """Raises HTTPException (400): The state or the order is none."""
    for name, allowed in (("state", _STATES), ("order", (_NEWEST,))):
        if given[name]:
            read_choice(name, given[name], allowed)
    state, text = given["state"], given["text"].strip()[:_LONGEST]
    is_newest_first = given["order"] == _NEWEST
    return GroupFilter("" if state == _PROBLEMS else state, state == _PROBLEMS, text, is_newest_first=is_newest_first)


class _GroupPages:
    def __init__(self, console: Console) -> None:
        self._console = console

    def list(self, request: Request) -> Response:
        console, groups = self._console, self._console.groups
        if groups is None:
            return console.page(request, "no_groups.html")
        freshness = groups.watch.look()
        given = known_parameters(request, "state", "text", "order", "page")
        wanted = _filter(given)
        kept = {name: given[name] for name in ("state", "text", "order")}
        page = read_page_number(given["page"], _SHOWN, "/groups", kept)
        found = list_groups(console, request, wanted, _SHOWN, page.first - 1)
        return console.page(
            request,
            "groups.html",
            found=found,
            rows=[(each, bar_of(each), tone_of(each)) for each in found.groups],
            totals=groups.watch.totals,
            freshness=freshness,
            is_old=is_old(freshness.as_of, console.sources.clock.now()),
            facts_unit=console.sources.facts_unit,
            stores=console.sources.find_aggregation(),
            state=given["state"],
            states=_STATES,
            text=wanted.text,
            order=given["order"],
            page=page,
            query=urlencode({name: value for name, value in kept.items() if value}),
            kind_of=kind_of,
        )

    def file(self, request: Request) -> Response:
        groups_of(self._console).watch.look()
        wanted = _filter(known_parameters(request, "state", "text", "order"))
        return csv_answer("groups", _COLUMNS, self._rows(request, wanted))

    def _rows(self, request: Request, wanted: GroupFilter) -> Iterator[Sequence[object]]:
        for offset in range(0, MAX_ROWS + 1, _AT_ONCE):
            found = list_groups(self._console, request, wanted, _AT_ONCE, offset)
            for each in found.groups:
                times = (time_cell(each.first_at), time_cell(each.last_at), time_cell(each.due_at))
                counts = (each.total, each.members, each.final, each.missing)
                names = (each.key, each.message_id, each.initiating_party, each.state.value)
                yield *names, *counts, *times, "; ".join(each.problems)
            if found.problem is not None:
                yield (f"the list is not complete: {found.problem}",)
            if not found.has_more:
                return

    def group(self, request: Request) -> Response:
        console, key, after = self._console, _key(request), request.query_params.get("after", "")[:1_024]
        found = get_group(console, request, key)
        assert console.groups is not None
        members, following = get_members(console, request, key, after, _SHOWN_MEMBERS)
        freshness = console.groups.watch.look()
        return console.page(
            request,
            "group.html",
            found=found,
            group=found.group,
            bar_segments=bar_of(found.group),
            tone=tone_of(found.group),
            members=members,
            after=after,
            next_page=None if following is None else f"/groups/{quote(key, safe='')}?{urlencode({'after': following})}",
            freshness=freshness,
            is_old=is_old(freshness.as_of, console.sources.clock.now()),
            given=console.groups.find_given(found.group.key) if found.group.state in CLOSABLE else None,
            may_close=identity_of(request).may(Role.OPERATOR) and found.group.state in CLOSABLE,
            may_see=identity_of(request).may(Role.PAYMENTS),
            kind_of=kind_of,
        )

    def closing(self, request: Request) -> Response:
        """Show what closing does, and ask for the reason."""
        return self._console.page(request, "close_group.html", group=_closable(self._console, request))

    @staticmethod
    def closed(request: Request, body: CloseBecause, answer: GivenAnswer) -> Response:
        del body, answer
        return RedirectResponse(f"/groups/{quote(_key(request), safe='')}", HTTPStatus.SEE_OTHER)
