"""The regions of this machine's workers, and the attributes of their sink mqtt, as a page and operations of the API."""

from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from time import monotonic, sleep
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.identity import Role
from notification_service.console.access.layer import route
from notification_service.console.context import (
    MAX_REASON,
    Because,
    Console,
    Name,
    Nothing,
    Operation,
    change_of,
    form_route,
    identity_of,
    read_form,
    read_query,
    reason_of,
)
from notification_service.console.sources import RegionControl, SinkControl
from notification_service.status.report import RegionStatus
from notification_service.status.sink_attributes import RegionOrder, ShownAttribute, changes_text
from resequencer.errors import ConfigurationError, ResequencerError
from resequencer.order import is_same_person

_ANSWER_SECONDS = 5.0
_LOOK_SECONDS = 0.1

_Slot = Annotated[int, Meta(ge=0, le=999)]


class OneRegion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region of the worker in this slot. With `force` it is reset although it has not failed."""

    slot: _Slot
    force: bool = False


class ResetOrdered(msgspec.Struct, frozen=True):
    """The worker in this slot was ordered to reset its region. What came of it is `answer` of the region."""

    slot: int


class OneSlot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region of the worker in this slot."""

    slot: _Slot


class ToInitial(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The region of the worker in this slot goes back to its initial state, for this reason."""

    slot: _Slot
    because: Because


class InitialOrdered(msgspec.Struct, frozen=True):
    """The order for the worker in this slot, or the proposal (`is_proposal`): another person has to approve it then."""

    slot: int
    id: str
    is_proposal: bool


class InitialPlan(msgspec.Struct, frozen=True):
    """What a reset to the initial state would do, by the worker in this slot. If it is not `is_possible`, `text` says why not."""

    slot: int
    is_possible: bool
    text: str


class OneProposal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The proposal with this id for the region of the worker in this slot."""

    slot: _Slot
    id: Name


class SinkAttributes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The attributes of the sink mqtt to set. One that is empty stays as it is."""

    url: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    qos: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    notifications_topic: Annotated[str, Meta(max_length=MAX_REASON)] = ""
    dead_letters_topic: Annotated[str, Meta(max_length=MAX_REASON)] = ""

    @property
    def given(self) -> Mapping[str, str]:
        """The values by the names of the attributes."""
        names = {"notifications_topic": "notifications.topic", "dead_letters_topic": "dead-letters.topic"}
        return {names.get(name, name): value for name, value in msgspec.structs.asdict(self).items() if value}


class SinkAnswer(msgspec.Struct, frozen=True):
    """The attributes of the sink mqtt, and what to know about a change."""

    attributes: tuple[ShownAttribute, ...]
    notes: tuple[str, ...] = ()


class RegionAnswer(msgspec.Struct, frozen=True):
    """The region of the worker in `slot`; `state` is the worker's. `region` is null until the worker has reported it.

    `proposal` is the id of a reset to the initial state that waits for a second person, null without one.
    """

    slot: int
    state: str
    region: RegionStatus | None
    proposal: str | None = None


class RegionsAnswer(msgspec.Struct, frozen=True):
    """The regions of the workers of this machine by slot; none if no service has reported yet."""

    regions: tuple[RegionAnswer, ...]


def region_routes(console: Console) -> list[Route]:
    pages = _RegionPages(console)
    return [
        route("/regions", pages.regions, name="regions"),
        route("/regions/initial", pages.confirm, needs=Role.OPERATOR, name="confirm-initial"),
        form_route(console, "/regions/reset", OneRegion, partial(_order_reset, console), _back),
        form_route(console, "/regions/initial/give", ToInitial, partial(_order_initial, console), _back),
        form_route(console, "/regions/initial/approve", OneProposal, partial(_decide, console, is_approved=True), _back),
        form_route(console, "/regions/initial/reject", OneProposal, partial(_decide, console, is_approved=False), _back),
        route("/regions/sink", pages.set_sink, needs=Role.OPERATOR, name="form-sink", tokens=console.tokens),
        form_route(console, "/regions/sink/reset", Nothing, partial(_reset_sink, console), _back),
    ]


def _back(request: Request, taken: Any, answer: Any) -> Response:
    del request, taken, answer
    return RedirectResponse("/regions", HTTPStatus.SEE_OTHER)


class _RegionPages:
    def __init__(self, console: Console) -> None:
        self._console = console

    def regions(self, request: Request, status: int = 200, typed: Mapping[str, str] | None = None, problem: str = "") -> Response:
        """Show the page; with what a person `typed` for the sink and why it is refused."""
        console, identity = self._console, identity_of(request)
        service = console.sources.find_report()
        regions, sink_problem = console.sources.regions, None
        attributes: Sequence[ShownAttribute] = ()
        try:
            attributes = console.sources.sink.shown() if console.sources.sink is not None else ()
        except ResequencerError as error:
            sink_problem = str(error)
        return console.page(
            request,
            "regions.html",
            status,
            service=service,
            may_reset=regions is not None and identity.may(Role.OPERATOR),
            bridge=console.sources.find_bridge().bridge,
            proposals=_proposals(console),
            is_own=lambda proposal: is_same_person(proposal.by, identity.name),
            attributes=attributes,
            has_sink=console.sources.sink is not None,
            sink_problem=sink_problem,
            typed=typed or {},
            refused=problem,
        )

    def confirm(self, request: Request) -> Response:
        """Ask the worker what its initial state would mean, and let the person confirm that."""
        slot = read_query(request, OneSlot).slot
        plan = _plan_initial(self._console, request, slot)
        needs_approval = _regions(self._console).needs_approval
        return self._console.page(request, "confirm_initial.html", plan=plan, needs_approval=needs_approval)

    def set_sink(self, request: Request) -> Response:
        """Set what differs from the present values. A refusal keeps what was typed."""
        attributes = read_form(request, SinkAttributes)
        shown = {each.name: str(each.value) for each in _sink(self._console).shown()}
        given = {name: value for name, value in attributes.given.items() if value != shown.get(name)}
        try:
            _set_sink(self._console, request, given)
        except HTTPException as error:
            return self.regions(request, error.status_code, attributes.given, error.detail)
        return _back(request, attributes, None)


def _regions(console: Console) -> RegionControl:
    if console.sources.regions is None:
        raise HTTPException(HTTPStatus.CONFLICT, "no region can be reset here")
    return console.sources.regions


def _sink(console: Console) -> SinkControl:
    if console.sources.sink is None:
        raise HTTPException(HTTPStatus.CONFLICT, "the service has no sink mqtt: only the attributes of that sink can be changed")
    return console.sources.sink


def _no_worker(slot: int) -> HTTPException:
    return HTTPException(HTTPStatus.CONFLICT, f"worker {slot} does not run on this machine")


def _proposals(console: Console) -> Mapping[int, RegionOrder]:
    """The resets to the initial state that wait for a second person, by slot."""
    regions, service = console.sources.regions, console.sources.find_report()
    if regions is None or service is None:
        return {}
    found = {each.slot: regions.find_proposal(each.slot) for _, each in service.workers}
    return {slot: proposal for slot, proposal in found.items() if proposal is not None}


def _order_reset(console: Console, request: Request, one: OneRegion) -> ResetOrdered:
    """Give the order in the name of the person who asks. The worker executes or refuses it within a second.

    Raises:
        HTTPException: There is no such worker here (409), or the order could not be written (503).
    """
    console.audit_log.note(request, "region.reset", slot=one.slot, force=one.force)
    try:
        order_id = _regions(console).reset(one.slot, identity_of(request).name, is_forced=one.force)
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from error
    if order_id is None:
        raise _no_worker(one.slot)
    return ResetOrdered(one.slot)


def _plan_initial(console: Console, request: Request, slot: int) -> InitialPlan:
    """Ask the worker, and wait a moment for its answer.

    Raises:
        HTTPException: There is no such worker here, or it has not read the last order (409), or it does not answer (503).
    """
    regions = _regions(console)
    if regions.refusal is not None:
        return InitialPlan(slot, is_possible=False, text=regions.refusal)
    try:
        order_id = regions.plan_initial(slot, identity_of(request).name)
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
    if order_id is None:
        raise _no_worker(slot)
    until = monotonic() + _ANSWER_SECONDS
    while (answer := regions.find_answer(slot, order_id)) is None:
        if monotonic() > until:
            problem = f"worker {slot} has not answered: it waits for a server, or is being reset. Look at its region"
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, problem)
        sleep(_LOOK_SECONDS)
    return InitialPlan(slot, answer.has_obeyed, answer.answer or "")


def _order_initial(console: Console, request: Request, wanted: ToInitial) -> InitialOrdered:
    """Order the initial state, or propose it. Raises HTTPException (409): There is no such worker, or it is refused."""
    because, regions = reason_of(wanted.because), _regions(console)
    stage = {"stage": "proposed"} if regions.needs_approval else {}
    console.audit_log.note(request, "region.reset-to-initial", slot=wanted.slot, because=because, **stage)
    try:
        order = regions.reset_to_initial(wanted.slot, identity_of(request).name, because)
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
    if order is None:
        raise _no_worker(wanted.slot)
    return InitialOrdered(wanted.slot, order.id, regions.needs_approval)


def _decide(console: Console, request: Request, proposal: OneProposal, *, is_approved: bool) -> ResetOrdered:
    """Approve or reject a proposal. Raises HTTPException (409): It is not there any more, or is the person's own."""
    regions, action = _regions(console), "region.approve" if is_approved else "region.reject"
    found = regions.find_proposal(proposal.slot)
    details = {} if found is None or found.id != proposal.id else {"proposed_by": found.by, "because": found.because}
    console.audit_log.note(request, action, slot=proposal.slot, proposal=proposal.id, **details)
    try:
        regions.decide(proposal.slot, proposal.id, identity_of(request).name, is_approved=is_approved)
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
    return ResetOrdered(proposal.slot)


def _set_sink(console: Console, request: Request, given: Mapping[str, str]) -> SinkAnswer:
    """Set attributes. Raises HTTPException: 400 if a value is refused, 409 if nothing may be set at the moment."""
    sink = _sink(console)
    console.audit_log.note(request, "sink.set", attributes=changes_text(given))
    try:
        notes = sink.set(given, identity_of(request).name)
        return SinkAnswer(tuple(sink.shown()), tuple(notes))
    except ConfigurationError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error


def _reset_sink(console: Console, request: Request, nothing: Nothing) -> SinkAnswer:
    """Go back to what is configured. Raises HTTPException (409): That is not possible at the moment."""
    del nothing
    sink = _sink(console)
    console.audit_log.note(request, "sink.reset")
    try:
        sink.reset()
        return SinkAnswer(tuple(sink.shown()))
    except ResequencerError as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error


def region_operations(console: Console) -> list[Operation]:
    def regions(request: Request, query: msgspec.Struct) -> RegionsAnswer:
        del request, query
        found, proposals = console.sources.find_report(), _proposals(console)
        workers = () if found is None else found.workers
        return RegionsAnswer(
            tuple(
                RegionAnswer(report.slot, state, report.region, proposals[report.slot].id if report.slot in proposals else None)
                for state, report in workers
            )
        )

    def sink(request: Request, query: msgspec.Struct) -> SinkAnswer:
        del request, query
        try:
            return SinkAnswer(tuple(_sink(console).shown()))
        except ResequencerError as error:
            raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error

    def plan(request: Request, one: OneSlot) -> InitialPlan:
        return _plan_initial(console, request, one.slot)

    def set_sink(request: Request, attributes: SinkAttributes) -> SinkAnswer:
        return _set_sink(console, request, attributes.given)

    reset, initial = partial(_order_reset, console), partial(_order_initial, console)
    approve, reject = partial(_decide, console, is_approved=True), partial(_decide, console, is_approved=False)
    back = "Reset a region to its initial state"
    return [
        Operation("/regions", "regions", regions, RegionsAnswer, "The regions of the workers of this machine"),
        change_of(
            "/regions/reset", "reset-region", reset, ResetOrdered, "Let a region go back to its last checkpoint", OneRegion
        ),
        change_of("/regions/initial", "reset-region-to-initial", initial, InitialOrdered, back, ToInitial),
        change_of("/regions/initial/plan", "plan-initial", plan, InitialPlan, f"{back}: what that would do", OneSlot),
        change_of(
            "/regions/initial/approve", "approve-initial", approve, ResetOrdered, f"{back}: approve a proposal", OneProposal
        ),
        change_of("/regions/initial/reject", "reject-initial", reject, ResetOrdered, f"{back}: reject a proposal", OneProposal),
        Operation("/sink", "sink", sink, SinkAnswer, "The attributes of the sink mqtt"),
        change_of("/sink/set", "set-sink", set_sink, SinkAnswer, "Set attributes of the sink mqtt", SinkAttributes),
        change_of("/sink/reset", "reset-sink", partial(_reset_sink, console), SinkAnswer, "Set the sink mqtt back", Nothing),
    ]
