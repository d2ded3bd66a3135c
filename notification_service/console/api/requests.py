"""Reads what a request of the API brings; what it does not know or cannot read is refused, with what is expected instead."""

import re
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.events.identifiers import shown
from resequencer.clock import Instant, instant_of
from resequencer.printable import printable

Taken = TypeVar("Taken", bound=msgspec.Struct)
_PLACE = re.compile(r" - at `\$(?:\.(?P<name>[^`.\[]+))?[^`]*`$")


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


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


def read_instant(name: str, text: str) -> Instant | None:
    """Return the instant of the parameter, None if it is empty. Raises HTTPException (400) if it is no instant."""
    try:
        return instant_of(text) if text else None
    except ValueError as error:
        raise _bad(f"{name} is {shown(text)}; an instant such as 2026-03-28T23:33:55Z is expected") from error


def _problem(error: msgspec.ValidationError, given: dict[str, Any]) -> str:
    text = str(error)
    place = _PLACE.search(text)
    said = printable(_PLACE.sub("", text)).replace("`", "")
    name = place["name"] if place else None
    if name is None:
        return said[:1].lower() + said[1:]
    value = given.get(name)
    return f"{printable(name)} is {shown(value if isinstance(value, str) else repr(value))}; {said[:1].lower()}{said[1:]}"


def _bad(problem: str) -> HTTPException:
    return HTTPException(HTTPStatus.BAD_REQUEST, problem)
