"""Routes with the role that each needs; what changes something also needs a form token."""

from collections.abc import Callable
from typing import TypeAlias

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.identity import Identity, Role
from notification_service.console.access.layer import FormTokens, TokenRefused

Endpoint: TypeAlias = Callable[[Request], Response]
TOKEN_FIELD, TOKEN_HEADER = "form-token", "x-form-token"
_FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")


def route(path: str, endpoint: Endpoint, *, needs: Role = Role.VIEWER, name: str, tokens: FormTokens | None = None) -> Route:
    """Make a route for people with the role `needs`; others get 403. The endpoint runs in a thread.

    With `tokens` it is a POST that changes something. It needs a token, in the form's field `form-token` or in the header
    `x-form-token`, unless no browser adds the login by itself. The endpoint finds a form in `request.state.form`, or a body in
    `request.state.body`.
    """

    async def guarded(request: Request) -> Response:
        identity: Identity = request.state.identity
        if not identity.may(needs):
            raise HTTPException(403, f"this needs the role {needs.value}, and {identity.name} does not have it")
        if needs is Role.PAYMENTS and request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            raise HTTPException(403, "payment data is shown only from a page of this console")
        if tokens is not None:
            await _read(request)
            if identity.sends_by_itself:
                _check(request, identity, tokens)
        return await run_in_threadpool(endpoint, request)

    return Route(path, guarded, methods=["GET" if tokens is None else "POST"], name=name)


async def _read(request: Request) -> None:
    request.state.form, request.state.body = {}, b""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() in _FORMS:
        form = await request.form(max_files=0, max_fields=10_000)
        request.state.form = {name: str(value) for name, value in form.multi_items()}
        request.state.fields = [(name, str(value)) for name, value in form.multi_items()]
    else:
        request.state.body = await request.body()


def _check(request: Request, identity: Identity, tokens: FormTokens) -> None:
    origin = request.headers.get("origin")
    is_foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if is_foreign or request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "a request from another site was refused")
    try:
        tokens.take(identity, request.state.form.get(TOKEN_FIELD) or request.headers.get(TOKEN_HEADER, ""))
    except TokenRefused as refused:
        raise HTTPException(403, str(refused)) from refused
