"""Delivery: jobs, receivers and topics that are delivered straight, as pages and operations of the API."""

import secrets
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, TypeVar
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
from notification_service.console.context import (
    Because,
    Console,
    Name,
    Operation,
    change_of,
    form_route,
    identity_of,
    read_instant,
    reason_of,
)
from notification_service.console.dead_letters import answer_for
from notification_service.delivery.core.backlog import make_backlog
from notification_service.delivery.core.jobs import ErrorFilter, GateReport, Job, RowError, WaitingRow
from notification_service.delivery.direct.core.partition import DirectOrder, DirectOrderKind
from notification_service.delivery.direct.core.receiver_orders import outcome_texts, places_of
from notification_service.delivery.errors import JobRefused, OrderRefused, ReceiverUnknown
from notification_service.delivery.ledger.job_orders import MAX_RETRIED
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


def _filter_of(request: Request, error: str, since: str) -> ErrorFilter:
    """Return the filter; an answer 403 to a person who searches in answers that this person may not see."""
    if error and not identity_of(request).may(Role.PAYMENTS):
        raise HTTPException(HTTPStatus.FORBIDDEN, "a search in the answers of receivers needs the role payments")
    return ErrorFilter(error, read_instant("since", since))


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
        asked, ledger = request.query_params, _ledger_of(console)
        found = _get_job(console, asked.get("id", ""))
        error, since = asked.get("error", ""), asked.get("since", "")
        only = _filter_of(request, error, since)
        return console.page(
            request,
            "job.html",
            job=found,
            errors=_masked(identity_of(request), ledger.errors(found.id, _SHOWN_ERRORS, only)),
            may_change=may_change(request),
            error=error,
            since=since,
            chosen=None if only == ErrorFilter() else ledger.count_failed(found.id, only, with_late=False),
            limit=MAX_RETRIED,
        )

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
        if (job_name := getattr(taken, "job", None)) is not None:
            return RedirectResponse(f"/delivery/job?{urlencode({'id': job_name})}", HTTPStatus.SEE_OTHER)
        kind = "topics" if taken.receiver in console.sources.direct_receivers else "receiver"
        back = f"/delivery/{kind}?{urlencode({'name': taken.receiver})}"
        if isinstance(answer, Ordered):
            return console.page(request, "ordered.html", receiver=taken.receiver, text=answer.outcome, back=back)
        return RedirectResponse(back, HTTPStatus.SEE_OTHER)

    return [
        route("/delivery", overview, name="delivery"),
        route("/delivery/job", job, name="delivery-job"),
        route("/delivery/receiver", receiver, name="delivery-receiver"),
        route("/delivery/topics", topics, name="delivery-topics"),
        *(
            form_route(console, each.path, each.takes, each.endpoint, then)
            for each in (*_ledger_changes(console), *_topic_changes(console), *_receiver_changes(console))
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
    """The name of a job, and how many of its errors at most: those that contain the text `error`, and those since an instant."""

    job: Name
    limit: Limit = 100
    error: str = ""
    since: str = ""


class JobAnswer(msgspec.Struct, frozen=True):
    """A job, and why notifications of it failed or were rejected, the oldest rows first.

    `can_be_retried` is how many of the failed ones that the query chooses can be delivered again without `late`, 1 001 for more.
    """

    job: Job
    errors: tuple[RowError, ...]
    can_be_retried: int


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
    """The name of a job. With `late` also rows behind which a later one of their unit was delivered.

    With `error` or `since` only the rows whose error contains this text, or that failed at this instant or later, 1 000 at most;
    `GET /delivery/job` counts them.
    """

    job: Name
    late: bool = False
    error: str = ""
    since: str = ""


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
    """A `partition` (TOPIC-PARTITION) that is delivered straight from its topic, its receiver, and why this is ordered.

    With the name of the topic alone it is ordered for each partition that the topic has at this moment.
    """

    receiver: Name
    partition: Name
    because: Because


class PausedReceiver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A receiver to which calls are stopped, or begin again, and why."""

    receiver: Name
    because: Because


class RetriedNow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is called now: a `row` of the ledger, a blocked record of a topic (its `position`, TOPIC-PARTITION@OFFSET), or without
    both what waits first behind a shut gate.
    """

    receiver: Name
    row: int | None = None
    position: Name | None = None
    because: Because = "tried again by hand"


class _Ordering(NamedTuple):
    """What an order for a receiver of topics is about."""

    taken: SkippedRecord | OrderedPartition | PausedReceiver | RetriedNow
    offset: int | None = None


class Ordered(msgspec.Struct, frozen=True):
    """What came of an order. If no worker has executed it yet, this says so: the next owner will."""

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
        job, only = _get_job(console, taken.job).id, _filter_of(request, taken.error, taken.since)
        details = {"job": job, "late": str(taken.late).lower()}

        def retried(ledger: Ledger) -> tuple[int, int | None]:
            if only == ErrorFilter():
                return ledger.retry_failed(job, with_late=taken.late)
            return ledger.retry_chosen(job, only, with_late=taken.late), None

        chosen = {name: text for name, text in (("error", taken.error), ("since", taken.since)) if text}
        return Changed(*_change(console, request, "retry-failed", retried, **details, **chosen))

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
    console: Console, request: Request, kind: DirectOrderKind, ordering: _Ordering, places: Sequence[Partition | None] = (None,)
) -> Ordered:
    """Write who does it, then give the order to each place, None for the receiver, and wait for the outcomes.

    What all owners refuse is answered with 409.
    """
    receiver, because, offset = ordering.taken.receiver, reason_of(ordering.taken.because), ordering.offset
    place = ", ".join(str(each if offset is None else Origin(each, offset)) for each in places if each is not None)
    console.audit_log.note(request, f"delivery.{kind.value}", receiver=receiver, place=place, because=because)
    by, at = identity_of(request).name, instant_text(console.sources.clock.now())
    given = [
        (each, DirectOrder(id=secrets.token_hex(16), order=kind, by=by, because=because, at=at, offset=offset)) for each in places
    ]
    assert console.sources.order_delivery is not None, "there are such receivers"
    try:
        outcomes = console.sources.order_delivery(receiver, given, _WAIT_SECONDS)
        return Ordered("; ".join(outcome_texts(places, outcomes, _WAIT_SECONDS)))
    except OrderRefused as error:
        raise HTTPException(HTTPStatus.CONFLICT, str(error)) from error


def _topic_changes(console: Console) -> list[Operation]:
    def check(receiver: str) -> None:
        if receiver not in console.sources.direct_receivers:
            raise _no_topics(console, receiver)

    def skip(request: Request, taken: SkippedRecord) -> Ordered:
        check(taken.receiver)
        origin = _origin_of(taken.position)
        return _order(console, request, DirectOrderKind.SKIP, _Ordering(taken, origin.offset), [origin.partition])

    def of_partitions(kind: DirectOrderKind) -> Callable[[Request, OrderedPartition], Ordered]:
        def ordered(request: Request, taken: OrderedPartition) -> Ordered:
            check(taken.receiver)
            reason_of(taken.because)
            assert console.sources.find_partitions_of is not None, "there are such receivers"
            try:
                places = places_of(taken.partition, console.sources.find_partitions_of(taken.receiver))
            except OrderRefused as error:
                raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error
            return _order(console, request, kind, _Ordering(taken), places)

        return ordered

    skip_all, block = of_partitions(DirectOrderKind.SKIP_ALL), of_partitions(DirectOrderKind.BLOCK)
    return [
        change_of("/delivery/skip", "skip", skip, Ordered, "Make a blocked record of a topic a dead letter", SkippedRecord),
        change_of("/delivery/skip-all", "skip-all", skip_all, Ordered, "Skip all that fails in partitions", OrderedPartition),
        change_of("/delivery/block", "block", block, Ordered, "Try again what fails in partitions", OrderedPartition),
    ]


def _origin_of(position: str) -> Origin:
    origin = Origin.find(position)
    if origin is None:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the position is TOPIC-PARTITION@OFFSET, such as NOTIFICATIONS-0@17")
    return origin


def _receiver_changes(console: Console) -> list[Operation]:
    """What is ordered for a receiver of either kind."""

    def of_receiver(kind: DirectOrderKind, change: Callable[[Ledger, str, str, str], None], text: str) -> Any:
        def ordered(request: Request, taken: PausedReceiver) -> Ordered:
            if taken.receiver in console.sources.direct_receivers:
                return _order(console, request, kind, _Ordering(taken))
            receiver, because = _check_receiver(console, taken.receiver), reason_of(taken.because)
            by = identity_of(request).name
            details = {"receiver": receiver, "because": because}
            _change(console, request, kind.value, lambda ledger: change(ledger, receiver, by, because), **details)
            return Ordered(text)

        return ordered

    def retry_now(request: Request, taken: RetriedNow) -> Ordered:
        because = reason_of(taken.because)
        if taken.receiver in console.sources.direct_receivers:
            if taken.row is not None:
                raise HTTPException(HTTPStatus.BAD_REQUEST, "a receiver of topics has no rows: give the position of a record")
            origin = None if taken.position is None else _origin_of(taken.position)
            ordering = _Ordering(taken, None if origin is None else origin.offset)
            return _order(console, request, DirectOrderKind.RETRY_NOW, ordering, [None if origin is None else origin.partition])
        receiver, row = _check_receiver(console, taken.receiver), taken.row
        if taken.position is not None:
            raise HTTPException(HTTPStatus.BAD_REQUEST, "a receiver of the ledger has no positions: give the number of a row")
        details = {"receiver": receiver, "row": "" if row is None else str(row), "because": because}
        done = _change(console, request, "retry-now", lambda ledger: ledger.retry_now(receiver, row), **details)
        return Ordered(f"row {done} is called now")

    def resumed(ledger: Ledger, receiver: str, *_: str) -> None:
        ledger.resume(receiver)

    pause = of_receiver(DirectOrderKind.PAUSE, Ledger.pause, "the receiver is paused: no call begins; those under way end")
    resume = of_receiver(DirectOrderKind.RESUME, resumed, "the receiver gets calls again")
    return [
        change_of("/delivery/pause", "pause-receiver", pause, Ordered, "Begin no call for a receiver", PausedReceiver),
        change_of("/delivery/resume", "resume-receiver", resume, Ordered, "Let a receiver get calls again", PausedReceiver),
        change_of("/delivery/retry-now", "retry-now", retry_now, Ordered, "Call now for what waits", RetriedNow),
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
        ledger, only = _ledger_of(console), _filter_of(request, query.error, query.since)
        errors = _masked(identity_of(request), ledger.errors(found.id, query.limit, only))
        return JobAnswer(found, tuple(errors), ledger.count_failed(found.id, only, with_late=False))

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
        *_receiver_changes(console),
    ]
