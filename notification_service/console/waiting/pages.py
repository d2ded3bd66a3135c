"""The page of the waiting units: filtered, sorted, a page at a time, and as a file."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.layer import route
from notification_service.console.context import Console, known_parameters, read_choice, read_number
from notification_service.console.csv_files import csv_answer, time_cell
from notification_service.console.find_unit import NOT_STORED, find_service_hindrance
from notification_service.console.sources import is_old
from notification_service.console.unit_pages import may_order
from notification_service.console.waiting.units import BadPlace, Sort, WaitingFilter, WaitingUnit
from notification_service.events.identifiers import shown
from notification_service.status.service_report import NOT_RUNNING, ServiceReport
from resequencer.clock import Instant
from resequencer.keys.value_types import Duration, Mismatch
from resequencer.storage_port import WaitKind

_AGE = Duration("1s", "3650d")
_MAX_CHARACTERS = 512
_WAITING_ROWS = 50


FILTERS = ("for", "kind", "partition", "older", "id")


class Asked(NamedTuple):
    """The parameters of the page, as they were typed. `first` is the number of the first row, by the page before."""

    waits_for: str
    kind: str
    partition: str
    older: str
    unit: str
    sort: Sort
    after: str | None
    before: str | None
    first: int

    def filtered(self, now: Instant) -> WaitingFilter:
        """Raises Mismatch: The age is no duration."""
        before = now - int(_AGE.read(self.older) or 0) if self.older else None
        return WaitingFilter(self.waits_for, self.kind, self.partition, self.unit, before, self.sort)

    @property
    def is_filtered(self) -> bool:
        return any(self[:5])

    @property
    def given(self) -> Mapping[str, str]:
        """The filter as parameters of a URL."""
        names = {"for": self.waits_for, "kind": self.kind, "partition": self.partition, "older": self.older, "id": self.unit}
        return {name: value for name, value in names.items() if value}

    def url(self, path: str = "/waiting", **others: object) -> str:
        """Return an address with the same filter, in the same order if `others` have none."""
        sort = {} if self.sort is Sort.AGE else {"sort": self.sort.value}
        given = {**self.given, **sort, **others}
        return f"{path}?{urlencode(given)}" if given else path

    def refused(self) -> str:
        return f"older is {shown(self.older)}; expected: a number with a unit, such as 10m"


def waiting_routes(console: Console) -> list[Route]:
    def waiting(request: Request) -> Response:
        service, asked, problem = console.sources.find_report(), read_asked(request), None
        if not console.waiting.is_stored:
            return console.page(request, "waiting_reported.html", service=service, hindrance=find_service_hindrance(service))
        now = console.sources.clock.now()
        try:
            wanted = asked.filtered(now)
        except Mismatch:
            wanted, problem = WaitingFilter(), asked.refused()
        try:
            answer = console.waiting.ask(wanted, asked.after, _WAITING_ROWS, asked.before)
        except BadPlace as error:
            raise HTTPException(400, "this address names no page; begin at the first one") from error
        page = answer.page
        first = asked.first if page.before is not None else 1
        previous, following = max(1, first - _WAITING_ROWS), first + len(page.units)
        return console.page(
            request,
            "waiting.html",
            HTTPStatus.OK if problem is None else HTTPStatus.BAD_REQUEST,
            answer=answer,
            hindrance=find_service_hindrance(service),
            found=page,
            asked=asked,
            problem=problem,
            kinds=[each.value for each in WaitKind],
            partitions=[each.partition for each in answer.partitions],
            slots=slots_of(service),
            is_old=any(is_old(each.as_of, now) for each in answer.partitions),
            first=first,
            previous_page=None if page.before is None else asked.url(before=page.before, number=previous),
            next_page=None if page.after is None else asked.url(after=page.after, number=following),
            may_order=may_order(console, request),
        )

    def listed(request: Request) -> Response:
        if not console.waiting.is_stored:
            raise HTTPException(HTTPStatus.CONFLICT, NOT_STORED)
        asked, slots = read_asked(request), slots_of(console.sources.find_report())
        try:
            wanted = asked.filtered(console.sources.clock.now())
        except Mismatch as error:
            raise HTTPException(HTTPStatus.BAD_REQUEST, asked.refused()) from error
        rows = (_cells(each, slots) for each in console.waiting.all(wanted))
        return csv_answer("waiting", _COLUMNS, rows)

    return [
        route("/waiting", waiting, name="waiting"),
        route("/waiting.csv", listed, name="waiting-csv"),
    ]


_COLUMNS = ("unit", "waits_for", "kind", "since", "until", "envelopes", "bytes", "partition", "worker")


def _cells(each: WaitingUnit, slots: Mapping[str, int]) -> Sequence[object]:
    times = (time_cell(each.since), time_cell(each.until))
    return (each.unit, each.waits_for, each.kind, *times, each.envelopes, each.bytes, each.partition, slots.get(each.partition))


def slots_of(service: ServiceReport | None) -> Mapping[str, int]:
    """Return the slot of the worker that has each partition now."""
    if service is None or service.state == NOT_RUNNING:
        return {}
    return {each.partition: each.slot for each in service.whole.partitions}


def read_asked(request: Request) -> Asked:
    """Raises HTTPException (400): A parameter is unknown, or is not as expected."""
    return asked_of(known_parameters(request, *FILTERS, "sort", "after", "before", "number"))


def asked_of(given: Mapping[str, str]) -> Asked:
    """Raises HTTPException (400): A parameter is not as expected."""
    waits_for, kind, partition, older, unit = (given[each].strip()[:_MAX_CHARACTERS] for each in FILTERS)
    sort = Sort(read_choice("sort", given.get("sort") or Sort.AGE.value, tuple(Sort)))
    number = read_number("number", given.get("number") or "1", "that of a row")
    places = (given.get("after") or None, given.get("before") or None)
    return Asked(waits_for, kind, partition, older, unit, sort, *places, number)
