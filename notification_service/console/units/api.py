"""The waiting units, and the story of one unit."""

from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request

from notification_service.console.api.operation import Operation
from notification_service.console.api.requests import read_instant
from notification_service.console.context import Console, identity_of
from notification_service.console.masking import story_for_person
from notification_service.console.units.find import NOT_STORED
from notification_service.console.units.page import LONGEST_ID, story_for
from notification_service.console.units.story import UnitStory, Wait
from notification_service.console.waiting.query import BadPlace, Totals, WaitingClass, WaitingFilter, WaitingUnit
from notification_service.console.waiting.refresher import Freshness, WaitingAnswer
from notification_service.events.identifiers import shown
from resequencer.clock import Instant, instant_text
from resequencer.record import Partition
from resequencer.storage_port import WaitKind


class UnitsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which waiting units to list: all that is given must hold.

    `waits_for` and `unit` are beginnings. `before` is an instant (ISO 8601): units that wait since an earlier one. `after` is
    that of the page before. The order is by age, and by id if `unit` is given.
    """

    waits_for: str = ""
    kind: WaitKind | None = None
    partition: str = ""
    unit: str = ""
    before: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ListedUnit(Wait, frozen=True, kw_only=True):
    """A waiting unit. At `until` it is woken; `kind` says why. Instants are ISO 8601 texts in UTC."""

    unit: str
    partition: str


class AsOf(msgspec.Struct, frozen=True):
    """As of when the waiting units of a partition are listed, null if they were never read; `problem` is why not newer."""

    partition: str
    as_of: str | None
    problem: str | None


class UnitsAnswer(msgspec.Struct, frozen=True):
    """A page of waiting units. `after` is the parameter for the next page, null on the last one.

    `matching` counts the units that the filter lets through; if not `is_counted`, there are more. `total` and `classes` (the
    largest first) are about all waiting units.
    """

    units: tuple[ListedUnit, ...]
    after: str | None
    matching: int
    is_counted: bool
    total: Totals
    classes: tuple[WaitingClass, ...]
    as_of: str | None
    partitions: tuple[AsOf, ...]
    problem: str | None


class UnitQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The unit's id, and the partition if only this one is to be searched.

    Dead letters of the last day are looked for, and for about two seconds at most; with `all` all of them, for twenty seconds.
    """

    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
    partition: str = ""
    all: Literal["true", "false"] = "false"


def unit_operations(console: Console) -> list[Operation]:
    def units(request: Request, query: UnitsQuery) -> UnitsAnswer:
        del request
        before = read_instant("before", query.before)
        wanted = WaitingFilter(query.waits_for, query.kind or "", query.partition, query.unit, before)
        try:
            found = console.waiting.ask(wanted, query.after or None, query.limit)
        except BadPlace as error:
            raise HTTPException(
                HTTPStatus.BAD_REQUEST, f"after is {shown(query.after)}; that of an answer is expected"
            ) from error
        return _told(found, None if console.waiting.is_stored else NOT_STORED)

    def unit(request: Request, query: UnitQuery) -> UnitStory:
        partition = Partition.find(query.partition)
        if query.partition and partition is None:
            problem = f"partition is {shown(query.partition)}; a topic and a number, such as EVENTS-0, is expected"
            raise HTTPException(HTTPStatus.BAD_REQUEST, problem)
        return story_for_person(identity_of(request), story_for(console, query.id, partition, is_all=query.all == "true"))

    return [
        Operation("/units", "units", units, UnitsAnswer, "The waiting units, a page at a time", UnitsQuery),
        Operation("/unit", "unit", unit, UnitStory, "All that is known of a unit of work, without payment data", UnitQuery),
    ]


def _told(found: WaitingAnswer, problem: str | None) -> UnitsAnswer:
    page = found.page
    return UnitsAnswer(
        tuple(map(_listed, page.units)),
        page.after,
        page.matching,
        page.is_counted,
        page.total,
        page.classes,
        _text(found.as_of),
        tuple(map(_as_of, found.partitions)),
        problem or found.problem,
    )


def _listed(unit: WaitingUnit) -> ListedUnit:
    since, until = instant_text(unit.since), instant_text(unit.until)
    wait = (unit.waits_for, unit.kind, since, until, unit.envelopes, unit.bytes)
    return ListedUnit(*wait, unit=unit.unit, partition=unit.partition)


def _as_of(each: Freshness) -> AsOf:
    return AsOf(each.partition, _text(each.as_of), each.problem)


def _text(at: Instant | None) -> str | None:
    return None if at is None else instant_text(at)
