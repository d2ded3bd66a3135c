"""Delivery: the receivers and their gates, the jobs, why rows failed, and what an operator may do about it."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console import deliveries, topic_deliveries
from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console, identity_of

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
