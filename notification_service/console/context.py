"""What all pages and operations share: the console itself, how its pages are made, and how a request is read and answered."""

import re
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_args
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.templating import Jinja2Templates

from notification_service.aggregation.settings import PAYMENTS
from notification_service.console.access.identity import AuditLog, Identity, Role
from notification_service.console.access.layer import FormTokens, route
from notification_service.console.access.settings import HttpSettings
from notification_service.console.find_unit import called_text, relative_text
from notification_service.console.groups import Groups
from notification_service.console.history import History, Peers, Sampler
from notification_service.console.sources import SharedViews, Sources
from notification_service.console.stores.watch import OwnStore, WatchedStore
from notification_service.console.waiting.units import WaitingUnits
from notification_service.events.identifiers import shown
from resequencer.clock import Clock, Instant, instant_of, instant_text
from resequencer.printable import counted, duration_text, printable
from resequencer.record import Partition
from storage.view_port import StorageView

TEMPLATES = Path(__file__).parent / "templates"
_ISO_INSTANT = re.compile(r"\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}[.\d]*Z")


def make_templates(clock: Clock) -> Jinja2Templates:
    """All texts are escaped. Ids of other systems pass the filter `visible`, which shows control characters as escapes."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "visible": printable,
        "counted": counted,
        "number": "{:,}".format,
        "instant": instant_shown,
        "time": time_shown,
        "with_instants": lambda text: Markup(_ISO_INSTANT.sub(lambda found: time_shown(found[0]), str(escape(text)))),  # noqa: S704
        "since": lambda at: age_shown(at, clock.now()),
        "age": lambda at: duration_text(clock.now() - (instant_of(at) if isinstance(at, str) else at)),
        "relative": lambda at: relative_text(instant_of(at) if isinstance(at, str) else at, clock.now()),
        "duration": duration_text,
        "called": called_text,
        "called_for": lambda at: called_text(clock.now() - (instant_of(at) if isinstance(at, str) else at)),
        "rate": rate_text,
    }
    return Jinja2Templates(env=environment)


def instant_shown(at: Instant | str) -> str:
    """Return an instant as pages show it, to the second; a text that is no instant as it is, made printable."""
    try:
        return instant_text(instant_of(at) if isinstance(at, str) else at).replace("T", " ")[:19]
    except ValueError:
        return printable(str(at))


def time_shown(at: Instant | str) -> Markup:
    """Return an instant for the text of a page, in UTC. The script adds the reader's time beside it."""
    try:
        exact = instant_text(instant_of(at) if isinstance(at, str) else at)
    except ValueError:
        return escape(instant_shown(at))
    return Markup('<time datetime="{}">{}</time>').format(exact, instant_shown(at))


def age_shown(at: Instant | str, now: Instant) -> Markup:
    """Return for how long something lasts. The script keeps it right while the page is open; its tooltip has the instant."""
    began = instant_of(at) if isinstance(at, str) else at
    title = f"since {instant_shown(began)} UTC"
    return Markup('<time datetime="{}" data-age title="{}">{}</time>').format(
        instant_text(began), title, duration_text(now - began)
    )


def rate_text(per_second: float) -> str:
    """Return a rate with so many digits that a rare event is not shown as none."""
    return f"{per_second:.1f}" if per_second >= 0.1 or not per_second else f"{per_second:.3f}"


MAX_LISTENERS = 100
"""Each page or program that listens keeps a connection; half of those that the server has remain for requests."""


class Listening:
    """Counts those that listen now. Used by the server's thread alone, but for `check`."""

    def __init__(self) -> None:
        self.count = 0

    def check(self) -> None:
        """Raises HTTPException (503): As many listen as may."""
        if self.count >= MAX_LISTENERS:
            problem = "too many pages are open; load this one again to see what is new"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, problem, {"Retry-After": "10"})

    async def counted(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        """Yield the events, and count the listener while it gets them."""
        with self.taken():
            try:
                async for each in events:
                    yield each
            finally:
                if hasattr(events, "aclose"):
                    await events.aclose()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Count a listener meanwhile."""
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class Console:
    """One console. Requests are handled in several threads."""

    def __init__(self, settings: HttpSettings, sources: Sources) -> None:
        self.settings = settings
        self.sources = sources
        self.tokens = FormTokens(sources.steady_clock.passed)
        self.audit_log = AuditLog(sources.run_directory, settings.audit_retention_ms, sources.steady_clock)
        self.history = History(sources.run_directory, sources.steady_clock)
        self.sampler = Sampler(sources, self.history, has_approval=bool(settings.approval))
        self.waiting = WaitingUnits(sources)
        self.peers = Peers(settings.peers, settings.peers_token, sources.clock)
        self._version = metadata.version("resequencer")
        self._templates: Jinja2Templates = make_templates(sources.clock)
        self.ledger = None if sources.open_ledger is None else sources.open_ledger()
        self.groups = None if sources.groups is None else Groups(sources.groups, sources.clock)
        self.own_stores = {name: OwnStore(each, sources.clock) for name, each in sources.stores.items()}
        payments: Mapping[str, WatchedStore] = {} if self.groups is None else {PAYMENTS: self.groups}
        self.stores: Mapping[str, WatchedStore] = {**payments, **self.own_stores}
        """All stores: that of the payments of messages, and users' own."""
        self.listening = Listening()
        self._views = None if sources.open_view is None else SharedViews(sources.open_view)

    def page(self, request: Request, template: str, status: int = 200, **shown: Any) -> Response:
        """Render a page for the person who asks."""
        identity = identity_of(request)
        shown |= {"identity": identity, "now": self.sources.clock.now(), "form_token": lambda: self.tokens.make(identity)}
        shown["version"] = self._version
        shown |= {"has_own_stores": bool(self.own_stores)}
        return self._templates.TemplateResponse(request, template, shown, status_code=status)

    @contextmanager
    def viewing(self) -> Iterator[StorageView | None]:
        """A view of the storage for this thread alone; None with storage `none`."""
        if self._views is None:
            yield None
            return
        with self._views.lent() as view:
            yield view

    def start(self) -> None:
        """Begin to look at the service in the background."""
        self.sampler.start()
        self.waiting.start()
        for each in self.stores.values():
            each.start()

    def end_streams(self) -> None:
        """Let those go that listen to completions, so that the server need not wait for them. May be called more than once."""
        for each in self.stores.values():
            each.feed.end()

    def close(self) -> None:
        self.sampler.stop()
        for each in self.stores.values():
            each.close()
        self.waiting.close()
        if self.ledger is not None:
            self.ledger.close()
        if self._views is not None:
            self._views.close()


def identity_of(request: HTTPConnection) -> Identity:
    """Who makes this request, as the access layer found out."""
    identity: Identity = request.state.identity
    return identity


ROOT = "/api/v1"
JSON = "application/json"


Taken = TypeVar("Taken", bound=msgspec.Struct)
Answer = TypeVar("Answer")
MAX_REASON = 1_000
Name = Annotated[str, Meta(min_length=1, max_length=1_024)]
Because = Annotated[str, Meta(min_length=1, max_length=MAX_REASON)]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Operation(NamedTuple):
    """`path` is below `ROOT`. `takes` are the parameters of the URL, or the body if the operation `changes` something.

    `answers` is the structure of the answer, or the media type of one that has none. `endpoint` runs in a thread, and returns
    that structure, or a response of its own.
    """

    path: str
    name: str
    endpoint: Callable[[Request, Any], msgspec.Struct | Response]
    answers: type[msgspec.Struct] | str
    summary: str
    takes: type[msgspec.Struct] = Nothing
    needs: Role = Role.VIEWER
    changes: bool = False


def change_of(
    path: str,
    name: str,
    endpoint: Callable[[Request, Any], msgspec.Struct | Response],
    answers: type[msgspec.Struct],
    summary: str,
    takes: type[msgspec.Struct],
) -> Operation:
    """An operation by which an operator changes something."""
    return Operation(path, name, endpoint, answers, summary, takes, Role.OPERATOR, changes=True)


def route_of(console: Console, operation: Operation) -> Route:
    def endpoint(request: Request) -> Response:
        taken = (read_body if operation.changes else read_query)(request, operation.takes)
        answer = operation.endpoint(request, taken)
        return answer if isinstance(answer, Response) else answer_of(answer)

    tokens = console.tokens if operation.changes else None
    return route(f"{ROOT}{operation.path}", endpoint, needs=operation.needs, name=f"api-{operation.name}", tokens=tokens)


def form_route(
    console: Console,
    path: str,
    takes: type[Taken],
    change: Callable[[Request, Taken], Answer],
    then: Callable[[Request, Taken, Answer], Response],
) -> Route:
    """The route of a page's form by which an operator changes something as by an operation of the API.

    `then` makes the page of what the form brought and what the change answers.
    """

    def endpoint(request: Request) -> Response:
        taken = read_form(request, takes)
        return then(request, taken, change(request, taken))

    return route(path, endpoint, needs=Role.OPERATOR, name=f"form{path.replace('/', '-')}", tokens=console.tokens)


def answer_of(answer: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type=JSON)


_PLACE = re.compile(r" - at `\$(?:\.(?P<name>[^`.\[]+))?[^`]*`$")


def read_query(request: HTTPConnection, wanted: type[Taken]) -> Taken:
    """Return the parameters of the URL. Raises HTTPException (400) if one is unknown, missing, given twice or not as expected."""
    given: dict[str, str] = {}
    known = [each.encode_name for each in msgspec.structs.fields(wanted)]
    for name, value in request.query_params.multi_items():
        if name not in known:
            raise _bad(f"the parameter {shown(name)} is unknown; known are: {', '.join(known) or 'none'}")
        if name in given:
            raise _bad(f"the parameter {name} is given twice")
        given[name] = value
    try:
        taken = msgspec.convert(given, wanted, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(_problem(error, given)) from error
    nulls = [name for name in given if getattr(taken, name) is None]
    if nulls:  # The conversion takes the word `null` for no value.
        raise _bad(f"{nulls[0]} is {shown(given[nulls[0]])}; leave it out if you do not ask for it")
    return taken


def known_parameters(request: Request, *known: str) -> Mapping[str, str]:
    """Return the parameters of a page; one that is not given is empty.

    Raises HTTPException (400) if one is unknown or given twice: a filter that is not applied would mislead.
    """
    given = dict.fromkeys(known, "")
    for name, value in request.query_params.multi_items():
        if name not in given:
            raise _bad(f"the parameter {shown(name)} is unknown, its value is {shown(value)}; known are: {', '.join(known)}")
        if given[name]:
            raise _bad(f"the parameter {name} is given twice")
        given[name] = value
    return given


class PageNumber(NamedTuple):
    """A page of a list by its number, from 1, with `size` rows; `url` makes the address of a page with this number."""

    number: int
    size: int
    url: Callable[[int], str]

    @property
    def first(self) -> int:
        """The number of the first row, from 1."""
        return (self.number - 1) * self.size + 1

    @property
    def end(self) -> int:
        """How many rows there are up to the end of this page."""
        return self.number * self.size

    @property
    def previous(self) -> str | None:
        return self.url(self.number - 1) if self.number > 1 else None

    def next_of(self, matching: int) -> str | None:
        """The address of the next page, None behind the last of `matching` rows, and behind the last page that there is."""
        return self.url(self.number + 1) if matching > self.end and self.number < _MAX_PAGE else None


_MAX_PAGE = 100


def read_page_number(text: str, size: int, path: str, given: Mapping[str, str]) -> PageNumber:
    """Return the page. `given` are the other parameters. Raises HTTPException (400) if it is no number of a page."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else 0 if text else 1
    if not 0 < number <= _MAX_PAGE:
        raise _bad(f"page is {shown(text)}; expected: a number from 1 to {_MAX_PAGE}")
    kept = {name: value for name, value in given.items() if value}
    return PageNumber(number, size, lambda other: f"{path}?{urlencode({**kept, 'page': other})}")


def read_body(request: Request, wanted: type[Taken]) -> Taken:
    """Return the body, a JSON object.

    Raises HTTPException: 415 if it says that it is something else, 400 if it is malformed or has a wrong or unknown field.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is {shown(kind)}; expected: application/json")
    try:
        given = msgspec.json.decode(request.state.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(f"the body is no JSON: {printable(str(error))}") from error
    try:
        return msgspec.convert(given, wanted)
    except msgspec.ValidationError as error:
        raise _bad(_problem(error, given if isinstance(given, dict) else {})) from error


def read_form(request: Request, wanted: type[Taken]) -> Taken:
    """Return the fields of a form, whose names have hyphens. What is not filled in is empty or has its default; a box is `yes`.

    Texts are taken as they are, without their bounds and patterns: what a person forgot to write is answered in other words.
    """
    form, given = request.state.form, dict[str, Any]()
    for field in msgspec.structs.fields(wanted):
        text = form.get(field.name.replace("_", "-"), "")
        needs_value = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
        if field.type is bool:
            given[field.name] = text == "yes"
        elif not text and not needs_value:
            continue
        elif get_args(field.type)[:1] == (int,):
            given[field.name] = _number(field.name, text, field.type)
        else:
            given[field.name] = text
    return wanted(**given)


def _number(name: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text if text.isascii() and text.isdigit() else "", kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(f"{name} is {shown(text)}; expected: a number") from error


def reason_of(because: str) -> str:
    """Return the reason as it is kept. Raises HTTPException (400) if none is given."""
    reason = because.strip()[:MAX_REASON]
    if not reason:
        raise _bad("give a reason (because); it is stored with your name")
    return reason


def read_partition(text: str) -> Partition:
    """Raises HTTPException (400): The text is no partition."""
    found = Partition.find(text)
    if found is None:
        raise _bad(f"partition is {shown(text)}; expected: a topic and a number, such as EVENTS-0")
    return found


def read_choice(name: str, text: str, allowed: Collection[str]) -> str:
    """Raises HTTPException (400): The text is none of those that are allowed."""
    if text not in allowed:
        raise _bad(f"{name} is {shown(text)}; expected: {', '.join(allowed)}")
    return text


def read_number(name: str, text: str, expected: str) -> int:
    """Raises HTTPException (400): The text is no number from 0 on; `expected` says which one it should be."""
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise _bad(f"{name} is {shown(text)}; expected: {expected}")
    return int(text)


def read_instant(name: str, text: str | None) -> Instant | None:
    """Return the instant of the parameter, None if it is empty or not given. Raises HTTPException (400) if it is no instant."""
    return get_instant(name, text) if text else None


def get_instant(name: str, text: str) -> Instant:
    """Raises HTTPException (400): The text is no instant."""
    try:
        return instant_of(text.strip())
    except ValueError as error:
        raise _bad(f"{name} is {shown(text)}; expected: an instant such as 2026-03-28T23:33:55Z") from error


def _problem(error: msgspec.ValidationError, given: dict[str, Any]) -> str:
    text = str(error)
    place = _PLACE.search(text)
    problem = printable(_PLACE.sub("", text)).replace("`", "")
    name = place["name"] if place else None
    if name is None:
        return problem[:1].lower() + problem[1:]
    value = given.get(name)
    return f"{printable(name)} is {shown(value if isinstance(value, str) else repr(value))}; {problem[:1].lower()}{problem[1:]}"


def _bad(problem: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, problem)
