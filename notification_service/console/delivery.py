"""Delivery: jobs, receivers and topics that are delivered straight, as pages and operations of the API."""

import secrets
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Annotated, Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.identity import Identity, Role
from notification_service.console.access.layer import route
from notification_service.console.context import Because, Console, Name, Operation, change_of, form_route, identity_of, reason_of
from notification_service.console.dead_letters import answer_for
from notification_service.delivery.core.backlog import make_backlog
from notification_service.delivery.core.jobs import GateReport, Job, RowError, WaitingRow
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind, DirectResult
from notification_service.delivery.errors import JobRefused, OrderRefused, ReceiverUnknown
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.status.delivery import BlockedStatus, DirectStatus, ScheduleStatus
from resequencer.clock import instant_text
from resequencer.record import Origin, Partition

_SHOWN_ERRORS = 200
_SHOWN_WAITING = 100
_SHOWN_HELD = 100
_WAIT_SECONDS = 10.0

_Found = TypeVar("_Found")
_Masked = TypeVar("_Masked", GateReport, RowError, WaitingRow, DirectStatus, BlockedStatus)


def _masked(identity: Identity, found: Iterable[_Masked], field: str = "error") -> list[_Masked]:
    """Return the values with the answers that this person may see in their `field`."""

    def masked(each: _Masked) -> _Masked:
        text = getattr(each, field)
        return each if text is None else replace(each, **{field: answer_for(identity, text)})

    return [masked(each) for each in found]


def _topics_for(console: Console, identity: Identity) -> list[DirectStatus]:
    """Return each receiver of topics with the answers that this person may see; without partitions if no worker reports it."""
    reported = {each.receiver: each for each in console.sources.find_delivery().direct}
    found = _masked(identity, (reported.get(name, DirectStatus(name)) for name in console.sources.direct_receivers), "reason")
    return [
        replace(
            each,
            partitions=tuple(replace(one, records=tuple(_masked(identity, one.records))) for one in each.partitions),
        )
        for each in found
    ]


def _ledger_of(console: Console) -> Ledger:
    """Return the ledger; an answer 404 where no receiver is configured."""
    if console.ledger is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no receiver is configured: nothing is delivered (delivery.receivers)")
    return console.ledger


def _gates_for(console: Console, identity: Identity, ledger: Ledger) -> list[GateReport]:
    """Return the receivers of the ledger. How fast a backlog grows is known best by a worker, which always looks."""
    rates = {each.receiver: each.backlog.per_second for each in console.sources.find_delivery().gates if each.backlog is not None}
    gates = (
        replace(each, backlog=make_backlog(each.waiting, each.backlog.oldest_at, rate))
        if (rate := rates.get(each.receiver)) is not None
        else each
        for each in ledger.gates()
    )
    return _masked(identity, gates, "reason")


def _get_job(console: Console, job: str) -> Job:
    found = _ledger_of(console).find_job(job)
    if found is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no job of this name")
    return found


def _check_receiver(console: Console, receiver: str) -> str:
    """Return the receiver; an answer 404 if it is not configured."""
    if receiver not in _ledger_of(console).receivers:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no receiver of this name")
    return receiver


def _change(console: Console, request: Request, action: str, change: Callable[[Ledger], _Found], **details: str) -> _Found:
    """Write who does it, then do it. What the ledger refuses is answered with 409."""
    console.audit_log.note(request, f"delivery.{action}", **details)
    try:
        return change(_ledger_of(console))
    except JobRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error


def _no_topics(console: Console, receiver: str) -> HTTPException:
    return HTTPException(HTTPStatus.NOT_FOUND, str(ReceiverUnknown(receiver, console.sources.direct_receivers)))


def delivery_routes(console: Console) -> list[Route]:
    def overview(request: Request) -> Response:
        ledger, person = console.ledger, identity_of(request)
        return console.page(
            request,
            "jobs_and_receivers.html",
            has_ledger=ledger is not None,
            gates=[] if ledger is None else _gates_for(console, person, ledger),
            jobs=[] if ledger is None else ledger.jobs(),
            direct=_topics_for(console, person),
            schedules=console.sources.find_delivery().schedules,
        )

    def job(request: Request) -> Response:
        found = _get_job(console, request.query_params.get("id", ""))
        errors = _masked(identity_of(request), _ledger_of(console).errors(found.id, _SHOWN_ERRORS))
        return console.page(request, "job.html", job=found, errors=errors, may_change=may_change(request))

    def receiver(request: Request) -> Response:
        name, person = _check_receiver(console, request.query_params.get("name", "")), identity_of(request)
        ledger = _ledger_of(console)
        (gate,) = (each for each in _gates_for(console, person, ledger) if each.receiver == name)
        return console.page(
            request,
            "receiver.html",
            gate=gate,
            waiting=_masked(person, ledger.waiting(name, _SHOWN_WAITING)),
            held=ledger.held(name, _SHOWN_HELD),
            may_change=may_change(request),
        )

    def topics(request: Request) -> Response:
        name = request.query_params.get("name", "")
        found = next((each for each in _topics_for(console, identity_of(request)) if each.receiver == name), None)
        if found is None:
            raise _no_topics(console, name)
        return console.page(request, "receiver_topics.html", found=found, may_change=may_change(request))

    def may_change(request: Request) -> bool:
        return identity_of(request).may(Role.OPERATOR)

    def then(request: Request, taken: Any, answer: Any) -> Response:
        """Show what an order did, or the job or the receiver that was changed."""
        if isinstance(answer, Ordered):
            return console.page(request, "ordered.html", receiver=taken.receiver, text=answer.outcome)
        job_name = getattr(taken, "job", None)
        page = f"receiver?{urlencode({'name': taken.receiver})}" if job_name is None else f"job?{urlencode({'id': job_name})}"
        return RedirectResponse(f"/delivery/{page}", HTTPStatus.SEE_OTHER)

    return [
        route("/delivery", overview, name="delivery"),
        route("/delivery/job", job, name="delivery-job"),
        route("/delivery/receiver", receiver, name="delivery-receiver"),
        route("/delivery/topics", topics, name="delivery-topics"),
        *(
            form_route(console, each.path, each.takes, each.endpoint, then)
            for each in (*_ledger_changes(console), *_topic_changes(console))
        ),
    ]


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
    """A job, and why notifications of it failed or were rejected, the oldest rows first."""

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
    """How many rows will be delivered again, and how many stay as they are; null for what changes no rows."""

    rows: int | None = None
    left: int | None = None


class SkippedRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A blocked record of a topic: its receiver, its `position` (TOPIC-PARTITION@OFFSET), and why it is given up."""

    receiver: Name
    position: Name
    because: Because


class OrderedPartition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A `partition` (TOPIC-PARTITION) that is delivered straight from its topic, its receiver, and why this is ordered."""

    receiver: Name
    partition: Name
    because: Because


class Ordered(msgspec.Struct, frozen=True):
    """What came of an order for a partition. If no worker has executed it yet, this says so: its next owner will."""

    outcome: str


def _ledger_changes(console: Console) -> list[Operation]:
    def cancel(request: Request, taken: JobName) -> Changed:
        job = _get_job(console, taken.job).id
        _change(console, request, "cancel", lambda ledger: ledger.cancel_job(job), job=job)
        return Changed()

    def accept(request: Request, taken: AcceptLoss) -> Changed:
        job, because, by = _get_job(console, taken.job).id, taken.because.strip(), identity_of(request).name
        details = {"job": job, "because": because}
        _change(console, request, "accept-loss", lambda ledger: ledger.accept_loss(job, by, taken.because), **details)
        return Changed()

    def retry(request: Request, taken: RetryFailed) -> Changed:
        job, late = _get_job(console, taken.job).id, str(taken.late).lower()
        details = {"job": job, "late": late}
        change = _change(
            console, request, "retry-failed", lambda ledger: ledger.retry_failed(job, with_late=taken.late), **details
        )
        return Changed(*change)

    def open_gate(request: Request, taken: ReceiverName) -> Changed:
        receiver = _check_receiver(console, taken.receiver)
        _change(console, request, "open-gate", lambda ledger: ledger.open_gate(receiver), receiver=receiver)
        return Changed()

    def release(request: Request, taken: HeldUnit) -> Changed:
        receiver, unit = _check_receiver(console, taken.receiver), taken.unit
        _change(console, request, "release", lambda ledger: ledger.release_unit(receiver, unit), receiver=receiver, unit=unit)
        return Changed()

    return [
        change_of("/delivery/cancel", "cancel-job", cancel, Changed, "Cancel a job: nothing more of it is delivered", JobName),
        change_of(
            "/delivery/accept-loss",
            "accept-loss",
            accept,
            Changed,
            "Continue a job without the part of its source that is missing",
            AcceptLoss,
        ),
        change_of(
            "/delivery/retry-failed", "retry-failed", retry, Changed, "Deliver the failed notifications again", RetryFailed
        ),
        change_of(
            "/delivery/open-gate", "open-gate", open_gate, Changed, "Call a receiver again now: open its shut gate", ReceiverName
        ),
        change_of("/delivery/release", "release-unit", release, Changed, "Let a held unit continue", HeldUnit),
    ]


def _order(
    console: Console,
    request: Request,
    kind: DirectOrderKind,
    taken: SkippedRecord | OrderedPartition,
    partition: Partition,
    offset: int | None = None,
) -> Ordered:
    """Write who does it, then give the order and wait for its outcome. What the owner refuses is answered with 409."""
    receiver, because = taken.receiver, reason_of(taken.because)
    if receiver not in console.sources.direct_receivers:
        raise _no_topics(console, receiver)
    place = str(partition) if offset is None else str(Origin(partition, offset))
    console.audit_log.note(request, f"delivery.{kind.value}", receiver=receiver, place=place, because=because)
    by, at = identity_of(request).name, instant_text(console.sources.clock.now())
    given = DirectOrder(id=secrets.token_hex(16), order=kind, by=by, because=because, at=at, offset=offset)
    assert console.sources.order_delivery is not None, "there are such receivers"
    try:
        outcome = console.sources.order_delivery(receiver, partition, given, _WAIT_SECONDS)
    except OrderRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error
    if outcome is None:
        problem = f"no worker has executed it within {_WAIT_SECONDS:g} s: the next owner of {partition} will"
        return Ordered(f"the order is given, and {problem}")
    if outcome.result is DirectResult.REFUSED:
        raise HTTPException(HTTPStatus.CONFLICT, outcome.text)
    return Ordered(outcome.text)


def _topic_changes(console: Console) -> list[Operation]:
    def skip(request: Request, taken: SkippedRecord) -> Ordered:
        origin = Origin.find(taken.position)
        if origin is None:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "the position is TOPIC-PARTITION@OFFSET, such as NOTIFICATIONS-0@17")
        return _order(console, request, DirectOrderKind.SKIP, taken, origin.partition, origin.offset)

    def of_partition(kind: DirectOrderKind) -> Callable[[Request, OrderedPartition], Ordered]:
        def ordered(request: Request, taken: OrderedPartition) -> Ordered:
            partition = Partition.find(taken.partition)
            if partition is None:
                raise HTTPException(HTTPStatus.BAD_REQUEST, "the partition is TOPIC-PARTITION, such as NOTIFICATIONS-0")
            return _order(console, request, kind, taken, partition)

        return ordered

    skip_all, block = of_partition(DirectOrderKind.SKIP_ALL), of_partition(DirectOrderKind.BLOCK)
    return [
        change_of("/delivery/skip", "skip", skip, Ordered, "Make a blocked record of a topic a dead letter", SkippedRecord),
        change_of("/delivery/skip-all", "skip-all", skip_all, Ordered, "Skip all that fails in a partition", OrderedPartition),
        change_of("/delivery/block", "block", block, Ordered, "Try again what fails in a partition", OrderedPartition),
    ]


def delivery_operations(console: Console) -> list[Operation]:
    def delivery(request: Request, query: msgspec.Struct) -> DeliveryAnswer:
        del query
        identity = identity_of(request)
        topics = tuple(_topics_for(console, identity))
        schedules = console.sources.find_delivery().schedules
        if (topics or schedules) and console.ledger is None:
            return DeliveryAnswer((), (), topics, schedules)
        ledger = _ledger_of(console)
        return DeliveryAnswer(tuple(_gates_for(console, identity, ledger)), tuple(ledger.jobs()), topics, schedules)

    def job(request: Request, query: JobQuery) -> JobAnswer:
        found = _get_job(console, query.job)
        return JobAnswer(found, tuple(_masked(identity_of(request), _ledger_of(console).errors(found.id, query.limit))))

    def receiver(request: Request, query: ReceiverQuery) -> ReceiverAnswer:
        name, ledger = _check_receiver(console, query.receiver), _ledger_of(console)
        held = tuple(unit for unit, _ in ledger.held(name, query.limit))
        return ReceiverAnswer(tuple(_masked(identity_of(request), ledger.waiting(name, query.limit))), held)

    summary = "What waits for a receiver"
    return [
        Operation(
            "/delivery",
            "delivery",
            delivery,
            DeliveryAnswer,
            "The receivers with their gates (whether they are called), and the jobs",
        ),
        Operation("/delivery/job", "delivery-job", job, JobAnswer, "A job, and why notifications of it failed", JobQuery),
        Operation("/delivery/receiver", "delivery-receiver", receiver, ReceiverAnswer, summary, ReceiverQuery),
        *_ledger_changes(console),
        *_topic_changes(console),
    ]
