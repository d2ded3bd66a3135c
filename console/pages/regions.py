"""The regions of the workers: state, last interval, participants, and the reset of one that has failed."""

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from console.access.role import Role
from console.access.roles import route
from console.context import Console, identity_of
from status.service_report import NOT_RUNNING


def region_routes(console: Console) -> list[Route]:
    def regions(request: Request) -> Response:
        service = console.sources.find_report()
        is_running = service is not None and service.state != NOT_RUNNING
        return console.page(request, "regions.html", service=service, is_running=is_running)

    def reset(request: Request) -> Response:
        order_reset(console, request, slot_of(request), is_forced="force" in request.state.form)
        return RedirectResponse("/regions", HTTPStatus.SEE_OTHER)

    return [
        route("/regions", regions, name="regions"),
        route("/regions/reset", reset, needs=Role.OPERATOR, name="reset-region", tokens=console.tokens),
    ]


def order_reset(console: Console, request: Request, slot: int, *, is_forced: bool) -> None:
    """Order the reset and write it to the audit log.

    Raises:
        HTTPException: The region is not reset; the text says why.
    """
    console.audit_log.note(request, "region.reset", slot=slot, how="forced" if is_forced else "failed only")
    refusal = console.sources.workers.reset_region(slot, identity_of(request).name, is_forced=is_forced)
    if refusal is not None:
        raise HTTPException(HTTPStatus.CONFLICT, refusal)


def slot_of(request: Request) -> int:
    """Return the slot that a form names.

    Raises:
        HTTPException: It names none.
    """
    text = request.state.form.get("slot", "")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the slot is the number of a worker")
    return int(text)
