"""Users' own stores, as pages and operations of the API: their values, the last changes of one, and what a store completes.

A value needs the role `payments`, and each look at values is noted in the audit log.
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from notification_service.aggregation.settings import PAYMENTS
from notification_service.aggregation.view import ValueChange
from notification_service.connectors.dead_letters.shown_value import shown_body
from notification_service.console.access.identity import Role
from notification_service.console.access.layer import route, socket_route
from notification_service.console.context import ROOT, Console, Name, Nothing, Operation, identity_of, read_query
from notification_service.console.sources import is_old
from notification_service.console.stores.stream import EventsQuery, EventStream, Sending, listen, place_asked, serve_socket
from notification_service.console.stores.watch import OwnStore, StoreFreshness, Values, WatchedStore, json_value
from notification_service.events.identifiers import shown
from notification_service.status.aggregation import StoreStatus
from resequencer.clock import instant_of, instant_text
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_PAGE = 50
_MAX_TEXT = 1_024
_SHORT = 200
"""How many characters of a value a row of a page shows."""


class OneStore(msgspec.Struct, frozen=True):
    """A store, and what the aggregation workers of this machine report of it; null where none has reported."""

    name: str
    reported: StoreStatus | None


class StoresAnswer(msgspec.Struct, frozen=True):
    """The stores of the service. That of the payments of messages is `payments`: its values are the groups."""

    stores: tuple[OneStore, ...]


class StoreValue(msgspec.Struct, frozen=True):
    """A value of a key, or of a member of one, and its length. Without the role payments it is null, and `is_hidden` is set."""

    name: str
    value: msgspec.Raw
    size_bytes: int
    is_hidden: bool


class ValuesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`text` is a part of the key, whatever its case. `after` is that of the page before; the order is by the key."""

    text: Annotated[str, Meta(max_length=256)] = ""
    after: Annotated[str, Meta(max_length=1_024)] = ""
    limit: Annotated[int, Meta(ge=1, le=_PAGE)] = _PAGE


class ValuesAnswer(msgspec.Struct, frozen=True):
    """Values of a store, fewer than `limit` if they are long. `after` is the parameter for the next page, null on the last one.

    If not `is_whole`, the search took too long and was given up: it continues behind `after`. `as_of` is null if the values were
    never read; `problem` says why they are not newer, and since when.
    """

    values: tuple[StoreValue, ...]
    after: str | None
    is_whole: bool
    as_of: str | None
    problem: str | None
    problem_since: str | None


class KeyQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`after` and `limit` are about the members of the key, in the order of their names."""

    key: Name
    after: Annotated[str, Meta(max_length=1_024)] = ""
    limit: Annotated[int, Meta(ge=1, le=_PAGE)] = _PAGE


class StoreChange(msgspec.Struct, frozen=True):
    """What the value of the key, or with `member` of that member, was changed to; null and `is_deleted`: it was deleted."""

    at: str
    member: str | None
    value: msgspec.Raw
    is_deleted: bool
    is_hidden: bool


class ValueAnswer(msgspec.Struct, frozen=True):
    """A value with its members, and with its last changes, the latest first.

    `changes` is null where they are not known, and `changes_problem` says why. Brokers keep them until they compact the topic.
    """

    value: StoreValue
    members: tuple[StoreValue, ...]
    after: str | None
    changes: tuple[StoreChange, ...] | None
    changes_problem: str | None
    as_of: str | None
    problem: str | None
    problem_since: str | None


def _store(console: Console, connection: HTTPConnection) -> tuple[str, WatchedStore]:
    name = str(connection.path_params["store"])
    if name not in console.stores:
        known = ", ".join(console.stores) or "none"
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no store {shown(name[:100])}; known: {known}")
    return name, console.stores[name]


def _own(console: Console, request: Request) -> tuple[str, OwnStore]:
    name, store = _store(console, request)
    if not isinstance(store, OwnStore):
        raise HTTPException(HTTPStatus.NOT_FOUND, f"the values of the store {PAYMENTS} are the groups: /groups")
    return name, store


def _sees_values(connection: HTTPConnection) -> bool:
    return identity_of(connection).may(Role.PAYMENTS)


def _values(request: Request, found: Values) -> tuple[StoreValue, ...]:
    may_see = _sees_values(request)
    return tuple(StoreValue(name, json_value(body, sees_values=may_see), len(body), not may_see) for name, body in found.values)


def _fresh(freshness: StoreFreshness) -> tuple[str | None, str | None, str | None]:
    as_of, since = (None if each is None else instant_text(each) for each in (freshness.as_of, freshness.since))
    return as_of, freshness.problem, since


def find_values(console: Console, request: Request, query: ValuesQuery) -> ValuesAnswer:
    name, store = _own(console, request)
    if _sees_values(request):
        console.audit_log.note(request, "store.look", store=name, text=query.text, after=query.after)
    freshness = store.watch.look()
    found = store.find_values(query.text, query.after, query.limit)
    return ValuesAnswer(_values(request, found), found.after, found.is_whole, *_fresh(freshness))


def find_value(console: Console, request: Request, query: KeyQuery) -> ValueAnswer:
    """Return a value; an answer 404 if there is none, 503 while nothing could be read yet."""
    name, store = _own(console, request)
    if _sees_values(request):
        console.audit_log.note(request, "store.look", store=name, key=query.key)
    freshness = store.watch.look()
    with store.watch.reading() as view:
        head = view.find(query.key)
        if head is None and freshness.as_of is None:
            reason = f": {freshness.problem}" if freshness.problem else ""
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, f"the store was not read yet{reason}; try again in a moment")
        members = store.find_members(view, query.key, query.after, query.limit)
    if head is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"the store {name} has no value of the key {shown(query.key[:256])}")
    (value,) = _values(request, Values(((query.key, head.body),), None))
    changes, problem = _changes(request, store, query.key)
    return ValueAnswer(value, _values(request, members), members.after, changes, problem, *_fresh(freshness))


def _changes(request: Request, store: OwnStore, key: str) -> tuple[tuple[StoreChange, ...] | None, str | None]:
    try:
        changes = store.find_changes(key)
    except ResequencerError as error:
        return None, printable(str(error))
    if changes is None:
        return None, "files keep a value as it is now, and no changes"
    may_see = _sees_values(request)
    return tuple(_change(each, may_see=may_see) for each in changes), None


def _change(change: ValueChange, *, may_see: bool) -> StoreChange:
    value = json_value(change.body, sees_values=may_see)
    return StoreChange(instant_text(change.at), change.member or None, value, change.body is None, not may_see)


def store_operations(console: Console) -> list[Operation]:
    def stores(request: Request, query: Nothing) -> StoresAnswer:
        del request, query
        return StoresAnswer(tuple(_reported(console)))

    def events(request: Request, query: EventsQuery) -> EventStream:
        name, store = _store(console, request)
        return listen(console.listening, request, store, query, lambda: _note_listener(console, request, name, store))

    def values(request: Request, query: ValuesQuery) -> ValuesAnswer:
        return find_values(console, request, query)

    def value(request: Request, query: KeyQuery) -> ValueAnswer:
        return find_value(console, request, query)

    pushed = "What a store completes as it comes, as server-sent events; by a web socket: `/stores/{store}/socket?after=ID`"
    return [
        Operation("/stores", "stores", stores, StoresAnswer, "The stores, and how far their commands are applied"),
        Operation("/stores/{store}/events", "store-events", events, str(EventStream.media_type), pushed, EventsQuery),
        Operation("/stores/{store}/values", "store-values", values, ValuesAnswer, "The values of your own store", ValuesQuery),
        Operation("/stores/{store}/value", "store-value", value, ValueAnswer, "A value with its members and changes", KeyQuery),
    ]


def _reported(console: Console) -> Sequence[OneStore]:
    reported = {each.store: each for each in console.sources.find_aggregation().stores}
    return [OneStore(name, reported.get(name)) for name in console.stores]


def _note_listener(console: Console, connection: HTTPConnection, name: str, store: WatchedStore) -> bool:
    """Return whether the listener sees values of a user's own store, once that is in the audit log."""
    sees_values = isinstance(store, OwnStore) and _sees_values(connection)
    if sees_values:
        console.audit_log.note(connection, "store.listen", store=name)
    return sees_values


class SocketQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """As `EventsQuery`."""

    after: str = ""


def socket_routes(console: Console) -> list[WebSocketRoute]:
    async def listen(socket: WebSocket) -> None:
        name, store = _store(console, socket)
        console.listening.check()
        after = place_asked(socket, read_query(socket, SocketQuery).after)
        with console.listening.taken():
            sees_values = await run_in_threadpool(_note_listener, console, socket, name, store)
            await serve_socket(socket, Sending(store.feed, after, sees_values=sees_values))

    return [socket_route(f"{ROOT}/stores/{{store}}/socket", listen, name="store-socket")]


def store_routes(console: Console) -> list[Route]:
    def stores(request: Request) -> Response:
        return console.page(request, "stores.html", stores=_reported(console))

    def values(request: Request) -> Response:
        text, after = (request.query_params.get(each, "")[:_MAX_TEXT] for each in ("text", "after"))
        now = console.sources.clock.now()
        found = find_values(console, request, ValuesQuery(text, after))
        name = str(request.path_params["store"])
        return console.page(
            request,
            "store.html",
            store=name,
            found=found,
            rows=[(each, _short(each)) for each in found.values],
            text=text,
            after=after,
            next_page=_next(f"/stores/{name}", found.after, text=text),
            may_see=_sees_values(request),
            is_old=is_old(None if found.as_of is None else instant_of(found.as_of), now) and not _sees_values(request),
        )

    def value(request: Request) -> Response:
        key, after = (request.query_params.get(each, "")[:_MAX_TEXT] for each in ("key", "after"))
        found = find_value(console, request, KeyQuery(key, after))
        name = str(request.path_params["store"])
        return console.page(
            request,
            "store_value.html",
            store=name,
            found=found,
            body=None if found.value.is_hidden else shown_body("Value", bytes(found.value.value)),
            members=[(each, _short(each)) for each in found.members],
            changes=None if found.changes is None else [(each, _short(each)) for each in found.changes],
            after=after,
            next_page=_next(f"/stores/{name}/value", found.after, key=key),
            may_see=_sees_values(request),
            is_old=False,
        )

    return [
        route("/stores", stores, name="stores"),
        route("/stores/{store}", values, name="store"),
        route("/stores/{store}/value", value, name="store-value"),
    ]


def _next(path: str, after: str | None, **parameters: str) -> str | None:
    return None if after is None else f"{path}?{urlencode({**parameters, 'after': after})}"


def _short(each: StoreValue | StoreChange) -> str:
    text = bytes(each.value).decode()
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"
