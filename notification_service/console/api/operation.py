"""An operation of the API: its route, what it takes and what it answers, as the description (`openapi.json`) has it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.api.requests import Nothing, read_body, read_query
from notification_service.console.context import Console

ROOT = "/api/v1"
JSON = "application/json"


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


def answer_of(answer: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type=JSON)
