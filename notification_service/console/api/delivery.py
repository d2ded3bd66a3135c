"""Delivery: the gates of the receivers, the jobs, and what an operator changes."""

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from notification_service.console import deliveries, topic_deliveries
from notification_service.console.api.operation import Operation, change_of
from notification_service.console.context import Console, identity_of
from notification_service.delivery.core.jobs import GateReport, Job, RowError, WaitingRow
from notification_service.delivery.ledger.intake import LONGEST_REASON
from notification_service.status.delivery import DirectStatus, ScheduleStatus

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
