"""Groups: the payments of messages, how many are through, and what an operator closes."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.aggregation.payments.group_view import GroupView, describe
from notification_service.aggregation.payments.head import GroupState
from notification_service.console.access.role import Role
from notification_service.console.api.operation import Operation, change_of
from notification_service.console.context import Console, identity_of
from notification_service.console.groups.index import GroupFilter, GroupTotals
from notification_service.console.groups.shown import (
    GroupMember,
    GroupReport,
    InstructionCount,
    WholeGroup,
    find_group,
    find_members,
    group_for,
)
from notification_service.console.groups.stream import EventStream, stream
from notification_service.console.groups.watch import Groups, GroupsFreshness, NoPlace, place_of
from notification_service.events.identifiers import shown
from resequencer.clock import instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable

MAX_BECAUSE = 1_000
_MAX_NAME = 200
CLOSABLE = (GroupState.OPEN, GroupState.INCOMPLETE)
_GIVEN_UP = "the search took too long and was given up, so there may be others; choose a state, too"
_NOT_ENABLED = "the payments of messages are not counted: aggregation.enabled is false"


class ListedGroups(NamedTuple):
    """The first groups of a filter as this person may see them. `problem` says why it is not all that is known."""

    groups: tuple[GroupView, ...]
    matching: int
    is_counted: bool
    problem: str | None


def groups_of(console: Console) -> Groups:
    """Return the groups; an answer 404 where they are not counted."""
    if console.groups is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, _NOT_ENABLED)
    return console.groups


def list_groups(console: Console, request: Request, wanted: GroupFilter, most: int) -> ListedGroups:
    """Return up to `most` groups of a filter, as they are in the values now: the index may be some seconds older."""
    groups, identity = groups_of(console), identity_of(request)
    try:
        found = groups.watch.find(wanted._replace(sees_parties=identity.may(Role.PAYMENTS)), most)
        with groups.watch.reading() as view:
            heads = [(key, head.body) for key in found.keys if (head := view.find(key)) is not None]
    except ResequencerError as error:
        return ListedGroups((), 0, is_counted=True, problem=printable(str(error)))
    described = [group for key, head in heads if (group := _described(key, head)) is not None]
    problem = None if found.is_whole else _GIVEN_UP
    return ListedGroups(tuple(group_for(identity, each) for each in described), found.matching, found.is_counted, problem)


def get_group(console: Console, request: Request, key: str) -> WholeGroup:
    """Return a group; an answer 404 if there is none, 503 while nothing could be read yet."""
    groups = groups_of(console)
    freshness = groups.watch.look()
    with _answered(key), groups.watch.reading() as view:
        found = find_group(identity_of(request), view, key)
    if found is None:
        raise _missing(freshness)
    return found


def get_members(
    console: Console, request: Request, key: str, after: str, most: int
) -> tuple[tuple[GroupMember, ...], str | None]:
    """Return members of a group and the `after` of the next ones; an answer 404 if there is no such group."""
    groups = groups_of(console)
    with _answered(key), groups.watch.reading() as view:
        if view.find(key) is None:
            raise _missing(groups.watch.look())
        return find_members(identity_of(request), view, key, after, most)


def close_group(console: Console, request: Request, key: str, because: str) -> None:
    """Write who does it, then give the command. A group that has been reported in full is refused with 409."""
    state = get_group(console, request, key).group.state
    if state not in CLOSABLE:
        raise HTTPException(HTTPStatus.CONFLICT, f"the group is {state.value} already; nothing is left to close")
    said = because.strip()
    if not 0 < len(said) <= MAX_BECAUSE:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, f"say why, in 1 to {MAX_BECAUSE} characters; the group keeps it with your name"
        )
    console.audit_log.note(request, "groups.close", group=key, because=said)
    groups_of(console).close_group(key, identity_of(request).name[:_MAX_NAME], said)


def _described(key: str, head: bytes) -> GroupView | None:
    try:
        return describe(key, head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _missing(freshness: GroupsFreshness) -> HTTPException:
    if freshness.as_of is None:
        reason = f": {freshness.problem}" if freshness.problem else ""
        return HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"the groups were not read yet{reason}; try again in a moment")
    return HTTPException(HTTPStatus.NOT_FOUND, "there is no group of this key")


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


Because = Annotated[str, Meta(min_length=1, max_length=MAX_BECAUSE)]
_LAST_EVENT = "last-event-id"


class GroupsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which groups to list: all that is given must hold. `text` is part of the key or of the message's id.

    With the role payments it may also be part of the initiating party. `problems`: only those that need a person.
    """

    state: GroupState | None = None
    problems: Literal["true", "false"] = "false"
    text: Annotated[str, Meta(max_length=256)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 200


class GroupsAnswer(msgspec.Struct, frozen=True):
    """Groups: those that are not through first, the oldest at the top, then the others, the latest change at the top.

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


class GroupAnswer(msgspec.Struct, frozen=True):
    """A group with its payment informations, and the last 20 of its reports, the latest first."""

    group: GroupView
    instructions: tuple[InstructionCount, ...]
    reports: tuple[GroupReport, ...]
    message_name: str
    created: str | None
    control_sum: str | None
    total_sum: str | None


class MembersQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is that of the page before; the order is by the unit's id."""

    after: Annotated[str, Meta(max_length=1_024)] = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class MembersAnswer(msgspec.Struct, frozen=True):
    """Payments of a group. `after` is the parameter for the next page, null on the last one."""

    members: tuple[GroupMember, ...]
    after: str | None


class CloseBecause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why the group is closed."""

    because: Because


class GivenAnswer(msgspec.Struct, frozen=True):
    """The command is given; a worker that runs carries it out. The group's state tells when it has."""

    is_given: bool


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` is the id of the last event that was seen; the header `Last-Event-ID` counts more. Without both, from now on.

    With `progress` there are also events that counts of groups have changed.
    """

    after: str = ""
    progress: Literal["true", "false"] = "false"


def group_operations(console: Console) -> list[Operation]:
    def groups(request: Request, query: GroupsQuery) -> GroupsAnswer:
        watch = groups_of(console).watch
        freshness = watch.look()
        wanted = GroupFilter("" if query.state is None else query.state.value, query.problems == "true", query.text)
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
        ours = groups_of(console)
        console.listening.check()
        said = request.headers.get(_LAST_EVENT) or query.after
        try:
            after = place_of(said) if said else None
        except NoPlace as error:
            raise HTTPException(400, f"after is {shown(said[:100])}; the id of an event is expected") from error
        told = stream(ours.feed, ours.watch, after, with_progress=query.progress == "true")
        return EventStream(console.listening.counted(told))

    def group(request: Request, query: msgspec.Struct) -> GroupAnswer:
        del query
        found = get_group(console, request, _key(request))
        return GroupAnswer(
            found.group,
            found.instructions,
            found.reports,
            found.message_name,
            found.created,
            found.control_sum,
            found.total_sum,
        )

    def members(request: Request, query: MembersQuery) -> MembersAnswer:
        return MembersAnswer(*get_members(console, request, _key(request), query.after, query.limit))

    def close(request: Request, told: CloseBecause) -> GivenAnswer:
        close_group(console, request, _key(request), told.because)
        return GivenAnswer(is_given=True)

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
