"""Which role a route needs."""

from collections.abc import Callable
from functools import wraps
from typing import TypeAlias

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from console.access.identity import Identity, Role

Endpoint: TypeAlias = Callable[[Request], Response]


def route(path: str, endpoint: Endpoint, *, needs: Role = Role.VIEWER, methods: tuple[str, ...] = ("GET",), name: str) -> Route:
    """Make a route for people with the role `needs`. Others get 403. The endpoint runs in a thread."""

    @wraps(endpoint)
    def guarded(request: Request) -> Response:
        identity: Identity = request.state.identity
        if not identity.may(needs):
            raise HTTPException(403, f"this needs the role {needs.value}")
        return endpoint(request)

    return Route(path, guarded, methods=list(methods), name=name)
