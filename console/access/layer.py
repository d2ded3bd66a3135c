"""The access layer around the application: who makes a request, and the headers that protect every answer."""

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from console.access.identity import Authenticator

_PROTECTION = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class AccessLayer:
    """Answers 401 where there is no valid login; otherwise leaves the identity in `request.state.identity`."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _PROTECTION.items():
                    headers[name] = value
                if not scope["path"].startswith("/static/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        identity = self._authenticator.find_identity(HTTPConnection(scope))
        if identity is None:
            challenge = self._authenticator.challenge
            refusal = PlainTextResponse("log in\n", 401, {"WWW-Authenticate": challenge} if challenge else None)
            await refusal(scope, receive, send_protected)
            return
        scope.setdefault("state", {})["identity"] = identity
        await self._app(scope, receive, send_protected)
