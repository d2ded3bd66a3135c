"""Pages that say what went wrong. None shows a stack trace; the log has it."""

import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from notification_service.console.access.layer import BodyTooLarge
from notification_service.console.context import Console
from resequencer.errors import ResequencerError
from resequencer.printable import printable

_log = logging.getLogger("resequencer.console")


def error_handlers(console: Console) -> Mapping[Any, Callable[[Request, Exception], Response]]:
    """Return the handlers of the application, by exception."""

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _answer(console, request, error.status_code, error.detail, error.headers)

    def unavailable(request: Request, error: Exception) -> Response:
        return _answer(console, request, HTTPStatus.SERVICE_UNAVAILABLE, printable(str(error)))

    def unexpected(request: Request, error: Exception) -> Response:
        _log.error("a request for %s failed", printable(request.url.path), exc_info=error)
        return _answer(console, request, HTTPStatus.INTERNAL_SERVER_ERROR, "the console failed; its log says why")

    def too_large(request: Request, error: Exception) -> Response:
        return _answer(console, request, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error))

    return {HTTPException: refused, BodyTooLarge: too_large, ResequencerError: unavailable, Exception: unexpected}


def _answer(console: Console, request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": detail}, status, headers)
    if not hasattr(request.state, "identity"):
        return PlainTextResponse(f"{detail}\n", status)
    return console.page(request, "error.html", status, title=HTTPStatus(status).phrase, detail=detail)
