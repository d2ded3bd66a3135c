"""Groups: the payments of messages, what is missing since when, and the one that an operator closes."""

from http import HTTPStatus
from urllib.parse import quote, urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.aggregation.payments.head import GroupState
from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console, identity_of
from notification_service.console.groups.api import CLOSABLE, close_group, get_group, get_members, list_groups
from notification_service.console.groups.index import GroupFilter
from notification_service.console.groups.shown import bar_of, kind_of, tone_of

_SHOWN = 200
_SHOWN_MEMBERS = 100
_LONGEST = 256
_OLD_MS = 15_000
"""A view that is older gets a word of warning."""
_PROBLEMS = "problems"


def group_routes(console: Console) -> list[Route]:
    pages = _GroupPages(console)
    return [
        route("/groups", pages.list, name="groups"),
        route("/groups/{key}", pages.group, name="group"),
        route("/groups/{key}/closing", pages.closing, needs=Role.OPERATOR, name="closing-group"),
        route("/groups/{key}/close", pages.close, needs=Role.OPERATOR, name="close-group", tokens=console.tokens),
    ]


class _GroupPages:
    def __init__(self, console: Console) -> None:
        self._console = console

    def list(self, request: Request) -> Response:
        console, groups = self._console, self._console.groups
        if groups is None:
            return console.page(request, "groups/none.html")
        freshness = groups.watch.look()
        state, text = (request.query_params.get(each, "").strip()[:_LONGEST] for each in ("state", "text"))
        states = [each.value for each in GroupState]
        wanted = GroupFilter(state if state in states else "", state == _PROBLEMS, text)
        found = list_groups(console, request, wanted, _SHOWN)
        return console.page(
            request,
            "groups/list.html",
            found=found,
            rows=[(each, bar_of(each), tone_of(each)) for each in found.groups],
            totals=groups.watch.totals,
            freshness=freshness,
            is_old=self._is_old(freshness.as_of),
            facts_unit=console.sources.facts_unit,
            stores=groups.source.find_status(),
            state=state,
            states=[*states, _PROBLEMS],
            text=text,
            kind_of=kind_of,
        )

    def group(self, request: Request) -> Response:
        console, key, after = self._console, _key(request), request.query_params.get("after", "")[:1_024]
        found = get_group(console, request, key)
        assert console.groups is not None
        members, following = get_members(console, request, key, after, _SHOWN_MEMBERS)
        freshness = console.groups.watch.look()
        return console.page(
            request,
            "groups/group.html",
            found=found,
            group=found.group,
            bar_segments=bar_of(found.group),
            tone=tone_of(found.group),
            members=members,
            after=after,
            next_page=None if following is None else f"/groups/{quote(key, safe='')}?{urlencode({'after': following})}",
            freshness=freshness,
            is_old=self._is_old(freshness.as_of),
            given=console.groups.find_given(key) if found.group.state in CLOSABLE else None,
            may_close=identity_of(request).may(Role.OPERATOR) and found.group.state in CLOSABLE,
            may_see=identity_of(request).may(Role.PAYMENTS),
            kind_of=kind_of,
        )

    def closing(self, request: Request) -> Response:
        """Show what closing does, and ask for the reason."""
        group = get_group(self._console, request, _key(request)).group
        if group.state not in CLOSABLE:
            raise HTTPException(HTTPStatus.CONFLICT, f"the group is {group.state.value} already; nothing is left to close")
        return self._console.page(request, "groups/closing.html", group=group)

    def close(self, request: Request) -> Response:
        key = _key(request)
        close_group(self._console, request, key, request.state.form.get("because", ""))
        return RedirectResponse(f"/groups/{quote(key, safe='')}", HTTPStatus.SEE_OTHER)

    def _is_old(self, as_of: int | None) -> bool:
        return as_of is not None and self._console.sources.clock.now() - as_of > _OLD_MS


def _key(request: Request) -> str:
    return str(request.path_params["key"])
