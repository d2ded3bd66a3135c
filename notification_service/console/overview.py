"""The service: the overview, the workers, the partitions and the regions, as pages and operations of the API."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from math import floor, log10
from typing import Annotated, Literal, NamedTuple

import msgspec
from markupsafe import Markup
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.identity import Role
from notification_service.console.access.layer import route
from notification_service.console.context import (
    Console,
    Operation,
    change_of,
    form_route,
    identity_of,
    instant_shown,
    known_parameters,
    rate_text,
    read_choice,
)
from notification_service.console.history import Minute, ServiceAnswer, WorkerAnswer, service_answer, worker_answers
from notification_service.status.aggregation import aggregation_notes
from notification_service.status.delivery import delivery_notes
from notification_service.status.report import PartitionStatus, State, UntakenPartition
from notification_service.status.service_report import NOT_RUNNING, STALE, ServiceReport, sum_of_lags
from resequencer.clock import Instant
from resequencer.errors import ResequencerError
from resequencer.record import Partition

_WIDTH, _HEIGHT = 720, 90
_HOURS = {1: 60_000, 24: 20 * 60_000}
"""The ranges of the charts in hours, with the span of a bar in ms."""


class Adds(Enum):
    """What a bar shows of the minutes of its span: what was done in a second, how often it was, or the highest value."""

    RATE = "rate"
    COUNT = "count"
    HIGHEST = "highest"


class Bar(NamedTuple):
    """One bar in the units of the drawing, with what it stands for: `at` is the beginning of its span."""

    x: float
    y: float
    width: float
    height: float
    at: Instant
    value: float
    text: str


class HistoryChart(NamedTuple):
    """Bars of equal spans. `top` is the end of the scale; `highest` and `middle` are texts, as `top_text`."""

    title: str
    bars: tuple[Bar, ...]
    top: float
    top_text: str
    middle: str
    highest: str
    width: int = _WIDTH
    height: int = _HEIGHT

    @property
    def path(self) -> str:
        """The outline of all bars. A page has hundreds: as elements of the template they would cost it twice its time."""
        drawn = (each for each in self.bars if each.height)
        return "".join(f"M{each.x:g} {_HEIGHT}V{each.y:g}h{each.width:g}V{_HEIGHT}z" for each in drawn)

    @property
    def tooltips(self) -> Markup:
        """A span for each bar that is as high as the chart, with its instant and its value as the tooltip."""
        spans = (
            f'<rect x="{each.x:g}" width="{each.width:g}" height="{_HEIGHT}">'
            f'<title data-at="{each.at}">{instant_shown(each.at)}: {each.text}</title></rect>'
            for each in self.bars
        )
        return Markup("".join(spans))  # noqa: S704 - Instants and numbers alone.


def history_chart(title: str, minutes: Sequence[Minute], column: str, adds: Adds, hours: int, now: Instant) -> HistoryChart:
    """Draw `column` of the minutes of the last hours. Spans of which nothing is known have no bar."""
    span = _HOURS[hours]
    count = hours * 3_600_000 // span
    since = now - now % span - (count - 1) * span
    found: dict[int, list[int]] = {}
    for each in minutes:
        value, place = getattr(each, column), (each.minute - since) // span
        if value is not None and 0 <= place < count:
            found.setdefault(place, []).append(value)
    values: dict[int, float] = {place: max(each) if adds is Adds.HIGHEST else sum(each) for place, each in found.items()}
    if adds is Adds.RATE:  # The last span is not over.
        values = {place: 1_000 * each / max(10_000, min(span, now - since - place * span)) for place, each in values.items()}
    highest, write = max(values.values(), default=0.0), rate_text if adds is Adds.RATE else "{:,.0f}".format
    top, width = _top_of(highest), _WIDTH / count
    bars = (
        Bar(
            round(place * width, 1),
            round(_HEIGHT - _HEIGHT * value / top, 1),
            round(width - 1, 1),
            round(_HEIGHT * value / top, 1),
            since + place * span,
            value,
            write(value),
        )
        for place, value in sorted(values.items())
    )
    middle = f"{top / 2:,g}" if adds is Adds.RATE or (top / 2).is_integer() else ""
    return HistoryChart(title, tuple(bars), top, f"{top:,g}", middle, write(highest))


def _top_of(highest: float) -> float:
    """Return the smallest of 1, 2 and 5, times a power of ten, that is not below this."""
    if highest <= 0:
        return 1.0
    power = 10.0 ** floor(log10(highest))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= highest * 0.999_999)


def overview_routes(console: Console) -> list[Route]:
    def overview(request: Request) -> Response:
        service, now = console.sources.find_report(), console.sources.clock.now()
        is_live = service is not None and service.state not in (NOT_RUNNING, STALE)
        # The last report of a worker does not count the records that came since.
        table = None if is_live else partition_table(console, service)
        partitions = with_lags(console, service) if service is not None and is_live else ()
        lag = sum_of_lags(each.lag for each in (partitions if table is None else table.rows))
        delivery, aggregation = console.sources.find_delivery(), console.sources.find_aggregation()
        hours = _read_hours(request)
        minutes = console.history.minutes(now - (hours + 1) * 3_600_000)
        drawn = [
            ("Records read per second", "records", Adds.RATE),
            ("Notifications sent per second", "notifications", Adds.RATE),
            (f"Lag, {console.sources.lag_unit}", "lag", Adds.HIGHEST),
            ("Waiting units", "waiting", Adds.HIGHEST),
            ("Dead letters", "dead_letters", Adds.COUNT),
        ]
        if console.ledger is not None or console.sources.direct_receivers:
            drawn.insert(2, ("Calls that receivers accepted per second", "delivered", Adds.RATE))
        charts = [history_chart(title, minutes, column, adds, hours, now) for title, column, adds in drawn]
        return console.page(
            request,
            "overview.html",
            service=service,
            peers=console.peers.look(),
            facts=console.sources.facts,
            charts=charts,
            hours=hours,
            ranges=tuple(_HOURS),
            is_live=is_live,
            table=table,
            partitions=partitions,
            lag=lag,
            lag_unit=console.sources.lag_unit,
            facts_unit=console.sources.facts_unit,
            speed=console.history.speed(lag or 0) if is_live else None,
            new_dead_letters=console.sampler.new_dead_letters,
            open_proposals=console.sampler.open_proposals,
            proposed_edits=console.sampler.proposed_edits,
            groups=None if console.groups is None else console.groups.watch.glance(),
            delivery=delivery,
            aggregation=aggregation,
            late=[("/delivery", each) for each in delivery_notes(delivery, now)]
            + [("/groups", each) for each in aggregation_notes(aggregation, now)],
            groups_problem=None if console.groups is None else console.groups.watch.problem,
            has_groups=console.groups is not None,
        )

    return [route("/", overview, name="overview")]


def _read_hours(request: Request) -> int:
    text = known_parameters(request, "hours")["hours"] or "1"
    return int(read_choice("hours", text, [str(each) for each in _HOURS]))


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


def worker_routes(console: Console) -> list[Route]:
    restart, threads = _worker_changes(console)

    def workers(request: Request) -> Response:
        return console.page(request, "workers.html", service=console.sources.find_report(), peers=console.peers.look())

    def show_workers(request: Request, worker: OneWorker, answer: Restarted) -> Response:
        del request, worker, answer
        return RedirectResponse("/workers", HTTPStatus.SEE_OTHER)

    def show_threads(request: Request, worker: OneWorker, answer: Threads) -> Response:
        return console.page(request, "threads.html", slot=worker.slot, dump=answer.threads)

    return [
        route("/workers", workers, name="workers"),
        form_route(console, "/workers/restart", OneWorker, restart, show_workers),
        form_route(console, "/workers/threads", OneWorker, threads, show_threads),
    ]


def _worker_changes(
    console: Console,
) -> tuple[Callable[[Request, OneWorker], Restarted], Callable[[Request, OneWorker], Threads]]:
    """Return what pages and operations do with a worker: restart it, and show what its threads do."""

    def restart(request: Request, worker: OneWorker) -> Restarted:
        console.audit_log.note(request, "worker.restart", slot=worker.slot)
        if not console.sources.workers.restart(worker.slot):
            raise HTTPException(
                HTTPStatus.CONFLICT, f"worker {worker.slot} does not run here, would not be started again, or was asked already"
            )
        return Restarted(worker.slot)

    def threads(request: Request, worker: OneWorker) -> Threads:
        console.audit_log.note(request, "worker.threads", slot=worker.slot)
        dump = console.sources.workers.dump_threads(worker.slot)
        if dump is None:
            raise HTTPException(HTTPStatus.CONFLICT, f"worker {worker.slot} does not run on this machine, or did not answer")
        return Threads(worker.slot, dump)

    return restart, threads


class ServiceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `peers` the answer has the workers of the group's other machines, too."""

    peers: Literal["true", "false"] = "false"


class WorkersAnswer(msgspec.Struct, frozen=True):
    """The workers of this machine by slot; none if no service has reported yet."""

    workers: tuple[WorkerAnswer, ...]


class TokenAnswer(msgspec.Struct, frozen=True):
    """A token for one request that changes something, for the header `x-form-token`; valid for two hours."""

    token: str


def service_operations(console: Console) -> list[Operation]:
    sources, (restart, threads) = console.sources, _worker_changes(console)

    def service(request: Request, query: ServiceQuery) -> ServiceAnswer:
        del request
        peers = console.peers.look() if query.peers == "true" else None
        return service_answer(sources.find_report(), sources.find_served(), peers)

    def workers(request: Request, query: msgspec.Struct) -> WorkersAnswer:
        del request, query
        return WorkersAnswer(worker_answers(sources.find_report()))

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


class PartitionRow(NamedTuple):
    """One partition. What is not known is None. `stored` is the next offset to read by the storage.

    `end` is the log's end: as of the worker's report if that knows the lag, otherwise now.
    """

    partition: str
    held: PartitionStatus | None
    untaken: UntakenPartition | None
    stored: int | None
    end: int | None

    @property
    def position(self) -> int | None:
        return self.held.read_to if self.held else self.stored

    @property
    def lag(self) -> int | None:
        """How far the log extends beyond what was read: offsets on Kafka, bytes of files."""
        return None if self.end is None or self.position is None else max(0, self.end - self.position)

    @property
    def undecided(self) -> int | None:
        """How much a restart would read again: from the acknowledged position to where reading is, in the unit of `lag`."""
        return None if self.held is None else max(0, self.held.read_to - self.held.acknowledged)

    @property
    def is_held_back(self) -> bool:
        return self.held is not None and not (self.held.held_by is None and self.held.held_by_unit is None)

    @property
    def advice(self) -> str | None:
        """What an operator can do about what holds the position back, None if nothing does."""
        if self.untaken is not None:
            return f"repair the {self.untaken.unavailable}; the worker then takes the partition over by itself"
        if self.held is None or not self.is_held_back:
            return None
        if self.held.held_by_unit is not None:
            return "look at what this unit waits for; the position moves on when the unit is done, or at its deadline"
        return "nothing while this is new; if it stays for minutes, look at the worker's state and at the oldest waiting units"


class PartitionTable(NamedTuple):
    """All rows, and what could not be found out."""

    rows: tuple[PartitionRow, ...]
    problems: tuple[str, ...]


def partition_routes(console: Console) -> list[Route]:
    def partitions(request: Request) -> Response:
        service = console.sources.find_report()
        table = partition_table(console, service)
        is_running = service is not None and service.state != NOT_RUNNING
        may_order = console.sources.open_orders is not None and identity_of(request).may(Role.OPERATOR)
        return console.page(request, "partitions.html", table=table, is_running=is_running, may_order=may_order)

    return [route("/partitions", partitions, name="partitions")]


def with_lags(console: Console, service: ServiceReport) -> Sequence[PartitionStatus]:
    """Return the partitions of the workers. Where a worker does not know the lag, the log's end is looked at now.

    If the source does not answer the worker, it is not asked.
    """
    found = service.whole.partitions
    if service.state == State.SOURCE_UNAVAILABLE or all(each.lag is not None for each in found):
        return found
    try:
        ends = console.sources.find_ends()
    except ResequencerError:
        return found
    return [_with_lag(each, ends) for each in found]


def _with_lag(each: PartitionStatus, ends: Mapping[Partition, int]) -> PartitionStatus:
    """Return it with the lag up to this end, if its worker does not know the lag and the end is known."""
    end = ends.get(Partition.find(each.partition) or Partition(each.partition, 0))
    return each if each.lag is not None or end is None else msgspec.structs.replace(each, lag=max(0, end - each.read_to))


def partition_table(console: Console, service: ServiceReport | None) -> PartitionTable:
    """Put together what the reports, the log and the storage say. A part that does not answer leaves its column empty."""
    problems: list[str] = []
    whole = service.whole if service is not None and service.state != NOT_RUNNING else None
    untaken = {each.partition: each for each in whole.untaken} if whole else {}
    ends: Mapping[Partition, int] = {}
    try:
        ends = console.sources.find_ends()
    except ResequencerError as error:
        problems.append(f"the ends of the logs are not known: {error}")
    held = {each.partition: _with_lag(each, ends) for each in whole.partitions} if whole else {}
    known = ends or _partitions(console)
    stored = dict(_stored(console, known, problems))
    names = {str(each): each for each in known} | {name: Partition.find(name) for name in (*held, *untaken)}
    order = sorted(names, key=lambda name: names[name] or Partition(name, 0))
    seen = {name: each.read_to + each.lag for name, each in held.items() if each.lag is not None}
    rows = tuple(
        PartitionRow(
            name,
            held.get(name),
            untaken.get(name),
            stored.get(name),
            seen.get(name, ends.get(names[name] or Partition(name, 0))),
        )
        for name in order
    )
    return PartitionTable(rows, tuple(problems))


def _partitions(console: Console) -> Collection[Partition]:
    """Return the partitions of an input whose ends are not known."""
    try:
        return console.sources.find_partitions()
    except ResequencerError:
        return ()


def _stored(console: Console, partitions: Collection[Partition], problems: list[str]) -> Iterator[tuple[str, int]]:
    with console.viewing() as view:
        if view is None:
            return
        for each in partitions:
            try:
                header = view.find_header(each)
            except ResequencerError as error:
                problems.append(f"the storage's position is not known: {error}")
                return
            if header is not None and header.next_offset is not None:
                yield str(each), header.next_offset


class PartitionAnswer(msgspec.Struct, frozen=True):
    """One partition of the input. `held` is what its worker reports, `untaken` why a worker could not take it over yet.

    `stored` is the next offset to read as the storage has it, `end` where the log ends: as of `held` if that has a lag, else now.
    `lag` is how far it extends beyond what was read: offsets on Kafka, bytes of files. `undecided` is what a restart would read
    again, in the same unit; `advice` is what to do about what holds the position back, null if nothing does. What is not known is
    null.
    """

    partition: str
    held: PartitionStatus | None
    untaken: UntakenPartition | None
    stored: int | None
    end: int | None
    lag: int | None
    undecided: int | None
    advice: str | None


class PartitionsAnswer(msgspec.Struct, frozen=True):
    """The partitions in order, and what could not be found out."""

    partitions: tuple[PartitionAnswer, ...]
    problems: tuple[str, ...]


def partition_operations(console: Console) -> list[Operation]:
    def partitions(request: Request, query: msgspec.Struct) -> PartitionsAnswer:
        del request, query
        table = partition_table(console, console.sources.find_report())
        return PartitionsAnswer(tuple(map(_answer, table.rows)), table.problems)

    return [Operation("/partitions", "partitions", partitions, PartitionsAnswer, "The partitions of the input")]


def _answer(row: PartitionRow) -> PartitionAnswer:
    return PartitionAnswer(row.partition, row.held, row.untaken, row.stored, row.end, row.lag, row.undecided, row.advice)
