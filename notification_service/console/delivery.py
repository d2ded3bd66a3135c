"""Delivery: jobs and receivers, as pages and operations of the API."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Annotated
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console import deliveries, topic_deliveries
from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.api.operation import Operation, change_of
from notification_service.console.context import Console, identity_of
from notification_service.delivery.core.jobs import GateReport, Job, RowError, WaitingRow
from notification_service.delivery.ledger.intake import LONGEST_REASON
from notification_service.status.delivery import DirectStatus, ScheduleStatus

_SHOWN_ERRORS = 200
_SHOWN_WAITING = 100
_SHOWN_HELD = 100


def delivery_routes(console: Console) -> list[Route]:
    pages = _DeliveryPages(console)
    changes = (
        ("cancel", pages.cancel, "cancel-job"),
        ("accept-loss", pages.accept_loss, "accept-loss"),
        ("retry-failed", pages.retry_failed, "retry-failed"),
        ("open-gate", pages.open_gate, "open-gate"),
        ("release", pages.release, "release-unit"),
        ("skip", pages.skip, "skip"),
        ("skip-all", pages.skip_all, "skip-all"),
        ("block", pages.block, "block"),
    )
    return [
        route("/delivery", pages.overview, name="delivery"),
        route("/delivery/job", pages.job, name="delivery-job"),
        route("/delivery/receiver", pages.receiver, name="delivery-receiver"),
        route("/delivery/topics", pages.topics, name="delivery-topics"),
        *(
            route(f"/delivery/{path}", page, needs=Role.OPERATOR, name=f"delivery-{name}", tokens=console.tokens)
            for path, page, name in changes
        ),
    ]


class _DeliveryPages:
    def __init__(self, console: Console) -> None:
        self._console = console

    def overview(self, request: Request) -> Response:
        ledger, person = self._console.ledger, identity_of(request)
        return self._console.page(
            request,
            "delivery/jobs_and_receivers.html",
            has_ledger=ledger is not None,
            gates=[] if ledger is None else deliveries.gates_for(person, ledger.gates()),
            jobs=[] if ledger is None else ledger.jobs(),
            direct=topic_deliveries.receivers_for(self._console, person),
            schedules=self._console.sources.find_delivery().schedules,
        )

    def job(self, request: Request) -> Response:
        job = deliveries.find_job(self._console, request.query_params.get("id", ""))
        found = deliveries.ledger_of(self._console).errors(job.id, _SHOWN_ERRORS)
        errors = deliveries.errors_for(identity_of(request), found)
        return self._console.page(request, "delivery/job.html", job=job, errors=errors, may_change=self._may_change(request))

    def receiver(self, request: Request) -> Response:
        name = deliveries.check_receiver(self._console, request.query_params.get("name", ""))
        ledger = deliveries.ledger_of(self._console)
        person = identity_of(request)
        (gate,) = deliveries.gates_for(person, (each for each in ledger.gates() if each.receiver == name))
        return self._console.page(
            request,
            "delivery/receiver.html",
            gate=gate,
            waiting=deliveries.waiting_for(person, ledger.waiting(name, _SHOWN_WAITING)),
            held=ledger.held(name, _SHOWN_HELD),
            may_change=self._may_change(request),
        )

    def topics(self, request: Request) -> Response:
        found = topic_deliveries.find_receiver(self._console, identity_of(request), request.query_params.get("name", ""))
        return self._console.page(request, "delivery/topics.html", found=found, may_change=self._may_change(request))

    def skip(self, request: Request) -> Response:
        form = request.state.form
        text = topic_deliveries.skip(self._console, request, *_fields(form, "receiver", "position", "because"))
        return self._ordered(request, text)

    def skip_all(self, request: Request) -> Response:
        form = request.state.form
        text = topic_deliveries.skip_all(self._console, request, *_fields(form, "receiver", "partition", "because"))
        return self._ordered(request, text)

    def block(self, request: Request) -> Response:
        form = request.state.form
        text = topic_deliveries.block(self._console, request, *_fields(form, "receiver", "partition", "because"))
        return self._ordered(request, text)

    def _ordered(self, request: Request, text: str) -> Response:
        receiver = request.state.form.get("receiver", "")
        return self._console.page(request, "delivery/ordered.html", receiver=receiver, text=text)

    def cancel(self, request: Request) -> Response:
        job = request.state.form.get("job", "")
        deliveries.cancel_job(self._console, request, job)
        return _to_job(job)

    def accept_loss(self, request: Request) -> Response:
        job, because = _fields(request.state.form, "job", "because")
        deliveries.accept_loss(self._console, request, job, because)
        return _to_job(job)

    def retry_failed(self, request: Request) -> Response:
        form = request.state.form
        job = form.get("job", "")
        deliveries.retry_failed(self._console, request, job, with_late=form.get("late") == "yes")
        return _to_job(job)

    def open_gate(self, request: Request) -> Response:
        receiver = request.state.form.get("receiver", "")
        deliveries.open_gate(self._console, request, receiver)
        return _to_receiver(receiver)

    def release(self, request: Request) -> Response:
        form = request.state.form
        receiver = form.get("receiver", "")
        deliveries.release_unit(self._console, request, receiver, form.get("unit", ""))
        return _to_receiver(receiver)

    def _may_change(self, request: Request) -> bool:
        return identity_of(request).may(Role.OPERATOR)


def _fields(form: Mapping[str, str], *names: str) -> Iterator[str]:
    return (form.get(name, "") for name in names)


def _to_job(job: str) -> Response:
    return RedirectResponse(f"/delivery/job?{urlencode({'id': job})}", HTTPStatus.SEE_OTHER)


def _to_receiver(receiver: str) -> Response:
    return RedirectResponse(f"/delivery/receiver?{urlencode({'name': receiver})}", HTTPStatus.SEE_OTHER)


Name = Annotated[str, Meta(min_length=1, max_length=1_024)]
Because = Annotated[str, Meta(min_length=1, max_length=LONGEST_REASON)]
Limit = Annotated[int, Meta(ge=1, le=500)]


class DeliveryAnswer(msgspec.Struct, frozen=True):
    """The gates of the receivers of the ledger, and the jobs, the newest first. Instants are in ms since 1970.

    `topics` are the receivers that are delivered to straight from topics, and `schedules` the schedules, as the workers of this
    machine report them.
    """

    gates: tuple[GateReport, ...]
    jobs: tuple[Job, ...]
    topics: tuple[DirectStatus, ...]
    schedules: tuple[ScheduleStatus, ...]


class JobQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a job, and how many of its errors at most."""

    job: Name
    limit: Limit = 100


class JobAnswer(msgspec.Struct, frozen=True):
    """A job, and why rows of it failed or were rejected, the oldest rows first."""

    job: Job
    errors: tuple[RowError, ...]


class ReceiverQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a receiver, and how many waiting rows at most."""

    receiver: Name
    limit: Limit = 100


class ReceiverAnswer(msgspec.Struct, frozen=True):
    """What waits for a receiver: the first open row of each unit, the one that is due first at the top, and the held units."""

    waiting: tuple[WaitingRow, ...]
    held_units: tuple[str, ...]


class JobName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a job."""

    job: Name


class AcceptLoss(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a job that lacks a part of its source, and why it may do without; the reason is kept with the job."""

    job: Name
    because: Because


class RetryFailed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a job. With `late` also rows behind which a later one of their unit was delivered."""

    job: Name
    late: bool = False


class ReceiverName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a receiver."""

    receiver: Name


class HeldUnit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A unit that a failed row holds for a receiver."""

    receiver: Name
    unit: Name


class Changed(msgspec.Struct, frozen=True):
    """How many rows will be delivered again, and how many were left as they are; null for what changes no rows."""

    rows: int | None = None
    left: int | None = None


def delivery_operations(console: Console) -> list[Operation]:
    def delivery(request: Request, query: msgspec.Struct) -> DeliveryAnswer:
        del query
        identity = identity_of(request)
        topics = tuple(topic_deliveries.receivers_for(console, identity))
        schedules = console.sources.find_delivery().schedules
        if (topics or schedules) and console.ledger is None:
            return DeliveryAnswer((), (), topics, schedules)
        ledger = deliveries.ledger_of(console)
        return DeliveryAnswer(tuple(deliveries.gates_for(identity, ledger.gates())), tuple(ledger.jobs()), topics, schedules)

    def job(request: Request, query: JobQuery) -> JobAnswer:
        found = deliveries.find_job(console, query.job)
        errors = deliveries.ledger_of(console).errors(found.id, query.limit)
        return JobAnswer(found, tuple(deliveries.errors_for(identity_of(request), errors)))

    def receiver(request: Request, query: ReceiverQuery) -> ReceiverAnswer:
        name, ledger = deliveries.check_receiver(console, query.receiver), deliveries.ledger_of(console)
        held = tuple(unit for unit, _ in ledger.held(name, query.limit))
        waiting = deliveries.waiting_for(identity_of(request), ledger.waiting(name, query.limit))
        return ReceiverAnswer(tuple(waiting), held)

    def cancel(request: Request, told: JobName) -> Changed:
        deliveries.cancel_job(console, request, told.job)
        return Changed()

    def accept(request: Request, told: AcceptLoss) -> Changed:
        deliveries.accept_loss(console, request, told.job, told.because)
        return Changed()

    def retry(request: Request, told: RetryFailed) -> Changed:
        return Changed(*deliveries.retry_failed(console, request, told.job, with_late=told.late))

    def open_gate(request: Request, told: ReceiverName) -> Changed:
        deliveries.open_gate(console, request, told.receiver)
        return Changed()

    def release(request: Request, told: HeldUnit) -> Changed:
        deliveries.release_unit(console, request, told.receiver, told.unit)
        return Changed()

    return [
        Operation("/delivery", "delivery", delivery, DeliveryAnswer, "The gates of the receivers, and the jobs"),
        Operation("/delivery/job", "delivery-job", job, JobAnswer, "A job, and why rows of it failed", JobQuery),
        Operation(
            "/delivery/receiver", "delivery-receiver", receiver, ReceiverAnswer, "What waits for a receiver", ReceiverQuery
        ),
        change_of("/delivery/cancel", "cancel-job", cancel, Changed, "Deliver nothing more of a job", JobName),
        change_of("/delivery/accept-loss", "accept-loss", accept, Changed, "Do without what is missing of a source", AcceptLoss),
        change_of("/delivery/retry-failed", "retry-failed", retry, Changed, "Deliver the failed rows again", RetryFailed),
        change_of("/delivery/open-gate", "open-gate", open_gate, Changed, "Open a shut gate now", ReceiverName),
        change_of("/delivery/release", "release-unit", release, Changed, "Let a held unit go on", HeldUnit),
    ]
