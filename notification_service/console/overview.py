"""The overview, the workers, and what the API says of the service."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Literal, NamedTuple

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
from notification_service.console.history import Minute
from notification_service.console.partitions import partition_table
from notification_service.console.service_answer import ServiceAnswer, WorkerAnswer, service_answer, worker_answers
from notification_service.status.service_report import NOT_RUNNING, STALE
from resequencer.clock import Instant

_WIDTH, _HEIGHT = 720, 90
_BARS = 72


class Bar(NamedTuple):
    """One bar in the units of the drawing, with what it stands for: `at` its beginning, `per_second` its height."""

    x: float
    y: float
    width: float
    height: float
    at: Instant
    per_second: float


class HistoryChart(NamedTuple):
    """Bars of equal spans. `most` is the scale's end, per second."""

    title: str
    bars: tuple[Bar, ...]
    most: float
    width: int = _WIDTH
    height: int = _HEIGHT


def history_chart(title: str, minutes: Sequence[Minute], column: str, since: Instant, now: Instant) -> HistoryChart:
    """Draw `column` of the minutes between the two instants, per second."""
    span = max(60_000, (now - since) // _BARS // 60_000 * 60_000)
    sums: dict[int, int] = {}
    for each in minutes:
        place = (each.minute - since) // span
        if 0 <= place < _BARS:
            sums[place] = sums.get(place, 0) + getattr(each, column)
    rates = {place: 1_000 * value / span for place, value in sums.items()}
    most = max(rates.values(), default=0.0)
    width = _WIDTH / _BARS
    bars = tuple(
        Bar(
            round(place * width, 1),
            round(_HEIGHT - _HEIGHT * rate / most, 1),
            round(width - 1, 1),
            round(_HEIGHT * rate / most, 1),
            since + place * span,
            rate,
        )
        for place, rate in sorted(rates.items())
        if rate
    )
    return HistoryChart(title, bars, most)


_HOURS_MS = 6 * 3_600_000


def overview_routes(console: Console) -> list[Route]:
    def overview(request: Request) -> Response:
        service, now = console.sources.find_report(), console.sources.clock.now()
        is_live = service is not None and service.state not in (NOT_RUNNING, STALE)
        # What a worker reported last tells nothing of the records that came since.
        table = None if is_live else partition_table(console, service)
        lags = [each.lag for each in (table.rows if table else service.whole.partitions if service else ())]
        lag = sum(each for each in lags if each is not None) if lags and None not in lags else None
        minutes = console.history.minutes(now - _HOURS_MS)
        charts = [
            history_chart(title, minutes, column, now - _HOURS_MS, now)
            for title, column in (("Records read per second", "records"), ("Notifications sent per second", "notifications"))
        ]
        return console.page(
            request,
            "overview.html",
            service=service,
            peers=console.peers.look(),
            facts=console.sources.facts,
            charts=charts,
            is_live=is_live,
            table=table,
            lag=lag,
            lag_unit=console.sources.lag_unit,
            facts_unit=console.sources.facts_unit,
            speed=console.history.speed(lag or 0) if is_live else None,
            new_dead_letters=console.sampler.new_dead_letters,
            open_proposals=console.sampler.open_proposals,
            proposed_edits=console.sampler.proposed_edits,
            groups=None if console.groups is None else console.groups.watch.glance(),
            stores=() if console.groups is None else console.groups.source.find_status().stores,
            has_groups=console.groups is not None,
        )

    return [route("/", overview, name="overview")]


def worker_routes(console: Console) -> list[Route]:
    def workers(request: Request) -> Response:
        return console.page(request, "workers.html", service=console.sources.find_report(), peers=console.peers.look())

    def restart(request: Request) -> Response:
        slot = _slot(request)
        console.audit_log.note(request, "worker.restart", slot=slot)
        if not console.sources.workers.restart(slot):
            raise HTTPException(
                HTTPStatus.CONFLICT, f"worker {slot} does not run here, would not be started again, or was asked already"
            )
        return RedirectResponse("/workers", HTTPStatus.SEE_OTHER)

    def threads(request: Request) -> Response:
        slot = _slot(request)
        console.audit_log.note(request, "worker.threads", slot=slot)
        dump = console.sources.workers.dump_threads(slot)
        if dump is None:
            raise HTTPException(HTTPStatus.CONFLICT, f"worker {slot} does not run on this machine, or did not answer")
        return console.page(request, "threads.html", slot=slot, dump=dump)

    return [
        route("/workers", workers, name="workers"),
        route("/workers/restart", restart, needs=Role.OPERATOR, name="restart-worker", tokens=console.tokens),
        route("/workers/threads", threads, needs=Role.OPERATOR, name="worker-threads", tokens=console.tokens),
    ]


def _slot(request: Request) -> int:
    text = request.state.form.get("slot", "")
    if not (text.isascii() and text.isdigit() and len(text) < 4):
        raise HTTPException(HTTPStatus.BAD_REQUEST, "the slot is the number of a worker")
    return int(text)


class ServiceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `peers` the answer has the workers of the group's other machines, too."""

    peers: Literal["true", "false"] = "false"


class WorkersAnswer(msgspec.Struct, frozen=True):
    """The workers of this machine by slot; none if no service has reported yet."""

    workers: tuple[WorkerAnswer, ...]


class OneWorker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker in this slot."""

    slot: Annotated[int, Meta(ge=0, le=999)]


class Restarted(msgspec.Struct, frozen=True):
    """The worker in this slot was asked to end; the supervisor starts it again."""

    slot: int


class Threads(msgspec.Struct, frozen=True):
    """What the threads of the worker in this slot do: Python's stacks, as text."""

    slot: int
    threads: str


class TokenAnswer(msgspec.Struct, frozen=True):
    """A token for one request that changes something, for the header `x-form-token`; valid for two hours."""

    token: str


def service_operations(console: Console) -> list[Operation]:
    sources = console.sources

    def service(request: Request, query: ServiceQuery) -> ServiceAnswer:
        del request
        peers = console.peers.look() if query.peers == "true" else None
        return service_answer(sources.find_report(), sources.find_served(), peers)

    def workers(request: Request, query: msgspec.Struct) -> WorkersAnswer:
        del request, query
        return WorkersAnswer(worker_answers(sources.find_report()))

    def restart(request: Request, worker: OneWorker) -> Restarted:
        console.audit_log.note(request, "worker.restart", slot=worker.slot)
        if not sources.workers.restart(worker.slot):
            raise HTTPException(
                HTTPStatus.CONFLICT, f"worker {worker.slot} does not run here, would not be started again, or was asked already"
            )
        return Restarted(worker.slot)

    def threads(request: Request, worker: OneWorker) -> Threads:
        console.audit_log.note(request, "worker.threads", slot=worker.slot)
        dump = sources.workers.dump_threads(worker.slot)
        if dump is None:
            raise HTTPException(HTTPStatus.CONFLICT, f"worker {worker.slot} does not run on this machine, or did not answer")
        return Threads(worker.slot, dump)

    def token(request: Request, query: msgspec.Struct) -> TokenAnswer:
        del query
        return TokenAnswer(console.tokens.make(identity_of(request)))

    return [
        Operation("/service", "service", service, ServiceAnswer, "The service as `status` reports it", ServiceQuery),
        Operation("/workers", "workers", workers, WorkersAnswer, "The workers of this machine"),
        change_of("/workers/restart", "restart-worker", restart, Restarted, "Let a worker end and start again", OneWorker),
        change_of("/workers/threads", "worker-threads", threads, Threads, "What the threads of a worker do now", OneWorker),
        Operation("/token", "token", token, TokenAnswer, "A token for one request that changes something"),
    ]
