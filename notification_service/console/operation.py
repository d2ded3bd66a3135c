"""An operation of the API: its route, what it takes and what it answers. What it cannot read is refused, with what it expects."""

import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console
from notification_service.events.identifiers import shown
from resequencer.clock import Instant, instant_of
from resequencer.printable import printable

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


def read_query(request: Request, wanted: type[Taken]) -> Taken:
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


def read_body(request: Request, wanted: type[Taken]) -> Taken:
    """Return the body, a JSON object.

    Raises HTTPException: 415 if it says that it is something else, 400 if it is malformed or has a wrong or unknown field.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the body is {shown(kind)}; application/json is expected")
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
        if field.type is bool:
            given[field.name] = text == "yes"
        elif get_args(field.type)[:1] == (int,):
            given[field.name] = _number(field.name, text, field.type)
        elif (field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT) or text:
            given[field.name] = text
    return wanted(**given)


def _number(name: str, text: str, kind: Any) -> Any:
    try:
        return msgspec.convert(text if text.isascii() and text.isdigit() else "", kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(f"{name} is {shown(text)}; a number is expected") from error


def reason_of(because: str) -> str:
    """Return the reason as it is kept. Raises HTTPException (400) if none is given."""
    reason = because.strip()[:MAX_REASON]
    if not reason:
        raise _bad("say why (because); the reason is kept with your name")
    return reason


def read_instant(name: str, text: str) -> Instant | None:
    """Return the instant of the parameter, None if it is empty. Raises HTTPException (400) if it is no instant."""
    try:
        return instant_of(text) if text else None
    except ValueError as error:
        raise _bad(f"{name} is {shown(text)}; an instant such as 2026-03-28T23:33:55Z is expected") from error


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
