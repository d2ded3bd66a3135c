"""Regions: the page, and the operations of the API."""

from http import HTTPStatus
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.api.operation import Operation, change_of
from notification_service.console.context import Console, identity_of
from notification_service.status.report import RegionStatus
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


class RegionAnswer(msgspec.Struct, frozen=True):
    """The region of the worker in `slot`; `state` is the worker's. `region` is null until the worker has told it."""

    slot: int
    state: str
    region: RegionStatus | None


class RegionsAnswer(msgspec.Struct, frozen=True):
    """The regions of the workers of this machine by slot; none if no service has reported yet."""

    regions: tuple[RegionAnswer, ...]


class OneRegion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region of the worker in this slot. With `force` it is reset although it has not failed."""

    slot: Annotated[int, Meta(ge=0, le=999)]
    force: bool = False


class ResetOrdered(msgspec.Struct, frozen=True):
    """The worker in this slot was told to reset its region. What came of it is `answer` of the region."""

    slot: int


def region_operations(console: Console) -> list[Operation]:
    def regions(request: Request, query: msgspec.Struct) -> RegionsAnswer:
        del request, query
        found = console.sources.find_report()
        workers = () if found is None else found.workers
        return RegionsAnswer(tuple(RegionAnswer(report.slot, state, report.region) for state, report in workers))

    def reset(request: Request, one: OneRegion) -> ResetOrdered:
        order_reset(console, request, one.slot, is_forced=one.force)
        return ResetOrdered(one.slot)

    return [
        Operation("/regions", "regions", regions, RegionsAnswer, "The regions of the workers of this machine"),
        change_of(
            "/regions/reset", "reset-region", reset, ResetOrdered, "Let a region go back to its last checkpoint", OneRegion
        ),
    ]
