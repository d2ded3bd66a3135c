"""Deliveries to receivers: what pages and API read from the ledger, and what an operator changes in it."""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.console.access.identity import Identity
from notification_service.console.context import Console, identity_of
from notification_service.console.masking import answer_for
from notification_service.delivery.core.jobs import GateReport, Job, RowError, WaitingRow
from notification_service.delivery.errors import JobRefused
from notification_service.delivery.ledger.intake import LONGEST_REASON
from notification_service.delivery.ledger.ledger import Ledger

_Found = TypeVar("_Found")


def gates_for(identity: Identity, gates: Iterable[GateReport]) -> list[GateReport]:
    """Return the gates with the answers that this person may see."""
    return [msgspec.structs.replace(each, reason=answer_for(identity, each.reason)) for each in gates]


def errors_for(identity: Identity, errors: Iterable[RowError]) -> list[RowError]:
    """Return the errors with the answers that this person may see."""
    return [msgspec.structs.replace(each, error=answer_for(identity, each.error)) for each in errors]


def waiting_for(identity: Identity, waiting: Iterable[WaitingRow]) -> list[WaitingRow]:
    """Return the rows with the answers that this person may see."""
    return [
        each if each.error is None else msgspec.structs.replace(each, error=answer_for(identity, each.error)) for each in waiting
    ]


def ledger_of(console: Console) -> Ledger:
    """Return the ledger; an answer 404 where no receiver is configured."""
    if console.ledger is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no receiver is configured: nothing is delivered (delivery.receivers)")
    return console.ledger


def find_job(console: Console, job: str) -> Job:
    found = ledger_of(console).find_job(job)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no job of this name")
    return found


def check_receiver(console: Console, receiver: str) -> str:
    """Return the receiver; an answer 404 if it is not configured."""
    if receiver not in ledger_of(console).receivers:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no receiver of this name")
    return receiver


def cancel_job(console: Console, request: Request, job: str) -> None:
    find_job(console, job)
    _change(console, request, "delivery.cancel", lambda ledger: ledger.cancel_job(job), job=job)


def accept_loss(console: Console, request: Request, job: str, because: str) -> None:
    find_job(console, job)
    by = identity_of(request).name
    _change(
        console,
        request,
        "delivery.accept-loss",
        lambda ledger: ledger.accept_loss(job, by, because),
        job=job,
        because=because.strip()[:LONGEST_REASON],
    )


def retry_failed(console: Console, request: Request, job: str, *, with_late: bool) -> tuple[int, int]:
    """Return how many rows will be delivered again, and how many were left."""
    find_job(console, job)
    return _change(
        console,
        request,
        "delivery.retry-failed",
        lambda ledger: ledger.retry_failed(job, with_late=with_late),
        job=job,
        late=str(with_late).lower(),
    )


def open_gate(console: Console, request: Request, receiver: str) -> None:
    check_receiver(console, receiver)
    _change(console, request, "delivery.open-gate", lambda ledger: ledger.open_gate(receiver), receiver=receiver)


def release_unit(console: Console, request: Request, receiver: str, unit: str) -> None:
    check_receiver(console, receiver)
    action = "delivery.release"
    _change(console, request, action, lambda ledger: ledger.release_unit(receiver, unit), receiver=receiver, unit=unit)


def _change(console: Console, request: Request, action: str, change: Callable[[Ledger], _Found], **details: str) -> _Found:
    """Write who does it, then do it. What the ledger refuses is answered with 409."""
    console.audit_log.note(request, action, **details)
    try:
        return change(ledger_of(console))
    except JobRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
