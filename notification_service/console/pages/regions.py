"""The regions: the state of each, its durations and participants, which failed and why, and the reset."""

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console, identity_of
from resequencer.errors import ResequencerError

_LONGEST_SLOT = 3


def region_routes(console: Console) -> list[Route]:
    def regions(request: Request) -> Response:
        may_reset = console.sources.regions is not None and identity_of(request).may(Role.OPERATOR)
        service, bridge = console.sources.find_report(), console.sources.find_bridge().bridge
        return console.page(request, "regions.html", service=service, may_reset=may_reset, bridge=bridge)

    def reset(request: Request) -> Response:
        form = request.state.form
        text = form.get("slot", "")
        if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_SLOT):
            raise HTTPException(HTTPStatus.BAD_REQUEST, "the slot is the number of a worker")
        order_reset(console, request, int(text), is_forced=form.get("force") == "yes")
        return RedirectResponse("/regions", HTTPStatus.SEE_OTHER)

    return [
        route("/regions", regions, name="regions"),
        route("/regions/reset", reset, needs=Role.OPERATOR, name="reset-region", tokens=console.tokens),
    ]


def order_reset(console: Console, request: Request, slot: int, *, is_forced: bool) -> None:
    """Give the order in the name of the person who asks. The worker obeys or refuses it within a second.

    Raises:
        HTTPException: There is no such worker here (409), or the order could not be written (503).
    """
    console.audit_log.note(request, "region.reset", slot=slot, force=is_forced)
    regions = console.sources.regions
    try:
        is_given = regions is not None and regions.reset(slot, identity_of(request).name, is_forced=is_forced)
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
    if not is_given:
        raise HTTPException(HTTPStatus.CONFLICT, f"worker {slot} does not run on this machine")
