"""What pages and API ask of the groups, with the answers of HTTP where there is nothing, and what an operator orders."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.aggregation.payments.group_view import GroupView, describe
from notification_service.aggregation.payments.head import GroupState
from notification_service.console.access.role import Role
from notification_service.console.context import Console, identity_of
from notification_service.console.groups.book import Groups
from notification_service.console.groups.index import GroupFilter
from notification_service.console.groups.shown import GroupMember, WholeGroup, find_group, find_members, group_for
from notification_service.console.groups.watch import GroupsFreshness
from resequencer.errors import ResequencerError
from resequencer.printable import printable

MOST_BECAUSE = 1_000
_MOST_NAME = 200
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
    if not 0 < len(said) <= MOST_BECAUSE:
        raise HTTPException(
            HTTPStatus.BAD_REQUEST, f"say why, in 1 to {MOST_BECAUSE} characters; the group keeps it with your name"
        )
    console.audit_log.note(request, "groups.close", group=key, because=said)
    groups_of(console).close_group(key, identity_of(request).name[:_MOST_NAME], said)


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
