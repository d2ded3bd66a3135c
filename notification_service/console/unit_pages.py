"""Units, as pages and operations of the API: the waiting ones by age, everything that is known of one, and the one search."""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.connectors.dead_letters.shown_value import ShownBody, shown_body
from notification_service.console.access.identity import Role
from notification_service.console.access.layer import route
from notification_service.console.context import Console, Operation, identity_of, read_instant, read_partition
from notification_service.console.dead_letters import story_for_person
from notification_service.console.find_unit import DAY_MS, NOT_STORED, Search, find_story, prospect_of
from notification_service.console.group_pages import find_groups
from notification_service.console.search.find import LONGEST_TEXT, FindAnswer, Reach, find
from notification_service.console.unit_story import UnitStory, Wait, timeline_of
from notification_service.console.waiting.units import (
    BadPlace,
    Freshness,
    Totals,
    WaitingAnswer,
    WaitingClass,
    WaitingFilter,
    WaitingPage,
    WaitingUnit,
)
from notification_service.events.identifiers import shown
from notification_service.events.own_data import opened
from notification_service.payments.payment_data import PaymentData
from resequencer.clock import Instant, instant_text
from resequencer.event import FIRST_FORMAT
from resequencer.order import OrderKind
from resequencer.record import Partition
from resequencer.storage_port import WaitKind
from resequencer.unit import Unit


def payment_data_of(unit: Unit) -> Iterator[ShownBody]:
    """Yield the objects that the unit has taken over, then the values of its stashed records in order of arrival.

    What another data handler keeps is known to it alone.
    """
    data = opened(unit.data)
    data = data if isinstance(data, PaymentData) else PaymentData()
    for kind, bodies in (("MDS", data.mds), ("PDS", data.pds), ("custom", data.custom)):
        yield from (shown_body(f"{kind} object {name}", body) for name, body in bodies)
    entries = [*unit.stash, *unit.queue, *([unit.retry.entry] if unit.retry else [])]
    records = [each.envelope.record for each in entries] + [each.record for each in unit.undecodable]
    for record in sorted(records, key=lambda each: each.origin.offset):
        yield shown_body(f"stashed record {record.origin}", record.content)


LONGEST_ID = 1_024
_ROWS = 200
_SECONDS, _ALL_SECONDS = 2.0, 20.0


def unit_routes(console: Console) -> list[Route]:
    def unit(request: Request) -> Response:
        name = request.query_params.get("id", "").strip()
        if not name:
            return RedirectResponse("/waiting", 303)
        is_all = "all" in request.query_params
        story = story_for_person(identity_of(request), story_for(console, _named(name), _partition(request), is_all=is_all))
        may_see = identity_of(request).may(Role.PAYMENTS)
        status = 200 if story.is_known or story.problems else 404
        return console.page(
            request,
            "unit.html",
            status,
            story=story,
            prospect=prospect_of(story),
            alike=None if story.is_known else _alike(console, name),
            may_see=may_see,
            rows=_ROWS,
            is_all=is_all,
            timeline=timeline_of(story),
            is_of_payments=console.sources.codec.events == FIRST_FORMAT,
            order_kinds=fitting_kinds(story) if may_order(console, request) else (),
        )

    def payment_data(request: Request) -> Response:
        name, partition = _named(request.query_params.get("id", "")), _partition(request)
        if partition is None:
            raise HTTPException(400, "this address needs a partition; begin at the page of the unit")
        console.audit_log.note(request, "payment-data.look", unit=name, partition=str(partition))
        with console.viewing() as view:
            found = None if view is None else view.find_unit(partition, name)
        if found is None:
            raise HTTPException(404, "the storage does not have this unit in this partition")
        bodies = tuple(payment_data_of(console.sources.codec.restore(partition, found.snapshot)))
        is_of_payments = console.sources.codec.events == FIRST_FORMAT
        return console.page(
            request, "payment_data.html", unit=name, partition=str(partition), bodies=bodies, is_of_payments=is_of_payments
        )

    return [
        route("/unit", unit, name="unit"),
        route("/unit/payment-data", payment_data, needs=Role.PAYMENTS, name="payment-data"),
    ]


def story_for(console: Console, unit: str, partition: Partition | None, *, is_all: bool) -> UnitStory:
    """Return the story of the unit, searched for in one partition or in all.

    With `is_all` all dead letters are searched, and for longer; otherwise those of the last day.
    """
    search = Search(
        None if is_all else console.sources.clock.now() - DAY_MS,
        _ALL_SECONDS if is_all else _SECONDS,
        tuple(console.waiting.find_partitions(unit)),
        partition,
    )
    return find_story(console.sources, console.viewing(), unit, search, console.ledger)


def may_order(console: Console, request: Request) -> bool:
    return console.sources.open_orders is not None and identity_of(request).may(Role.OPERATOR)


def _alike(console: Console, beginning: str) -> WaitingPage | None:
    """Return how many waiting units have ids that begin so; None with storage `none`, where no such search is possible."""
    return console.waiting.ask(WaitingFilter(unit=beginning), limit=1).page if console.waiting.is_stored else None


def _named(unit: str) -> str:
    if not 0 < len(unit) <= LONGEST_ID:
        raise HTTPException(400, f"an id has 1 to {LONGEST_ID} characters")
    return unit


def _partition(request: Request) -> Partition | None:
    text = request.query_params.get("partition", "")
    return read_partition(text) if text else None


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
    """A waiting unit. At `until` it is woken; `kind` says why. Instants are ISO 8601 texts in UTC.

    Of kind `call`, `until` is since when its handler is called; of `ordered`, until when its order waits for unread records.
    """

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
                HTTPStatus.BAD_REQUEST, f"after is {shown(query.after)}; expected: the after of an answer"
            ) from error
        return _units_answer(found, None if console.waiting.is_stored else NOT_STORED)

    def unit(request: Request, query: UnitQuery) -> UnitStory:
        partition = read_partition(query.partition) if query.partition else None
        return story_for_person(identity_of(request), story_for(console, query.id, partition, is_all=query.all == "true"))

    return [
        Operation("/units", "units", units, UnitsAnswer, "The waiting units, a page at a time", UnitsQuery),
        Operation("/unit", "unit", unit, UnitStory, "All that is known of a unit of work, without payment data", UnitQuery),
    ]


def _units_answer(found: WaitingAnswer, problem: str | None) -> UnitsAnswer:
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


_FITTING = {
    "deadline": (OrderKind.RELEASE, OrderKind.SKIP, OrderKind.HOLD, OrderKind.EXTEND),
    "retry": (OrderKind.RETRY, OrderKind.HOLD),
    "dependency": (OrderKind.RETRY, OrderKind.HOLD),
    "held": (OrderKind.RESUME,),
    "ordered": (OrderKind.RELEASE, OrderKind.SKIP),
    "call": (OrderKind.HOLD,),
}


def fitting_kinds(story: UnitStory) -> tuple[OrderKind, ...]:
    """Return the orders that fit what the unit is in. Those for one envelope are beside the envelope."""
    if story.partition is None:
        return ()
    return (OrderKind.HOLD,) if story.wait is None else _FITTING.get(story.wait.kind, ())


class FindQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole id of what is looked for. With `all` everything is searched, for longer, also if something was found.

    It may be that of a unit of work, a message or its group, a notification, a dead letter (TOPIC-PARTITION#NUMBER), the position
    of a record (TOPIC-PARTITION@OFFSET), and with the role payments an EndToEndId, which is noted in the audit log.
    """

    text: Annotated[str, Meta(min_length=1, max_length=LONGEST_TEXT)]
    all: Literal["true", "false"] = "false"


def find_operations(console: Console) -> list[Operation]:
    def search(request: Request, query: FindQuery) -> FindAnswer:
        return _find_for(console, request, query.text, is_all=query.all == "true")

    return [Operation("/find", "find", search, FindAnswer, "Search for whatever has this id", FindQuery)]


def find_routes(console: Console) -> list[Route]:
    def search(request: Request) -> Response:
        text, is_all = request.query_params.get("text", "").strip()[:LONGEST_TEXT], "all" in request.query_params
        if not text:
            return RedirectResponse("/waiting", 303)
        answer = _find_for(console, request, text, is_all=is_all)
        if len(answer.found) == 1 and not is_all:
            return RedirectResponse(answer.found[0].page, 303)
        alike = None if answer.found else _alike(console, text)
        status = 200 if answer.found or answer.problems else 404
        return console.page(request, "find.html", status, answer=answer, alike=alike)

    return [route("/find", search, name="find")]


def _find_for(console: Console, request: Request, text: str, *, is_all: bool) -> FindAnswer:
    def note() -> None:
        console.audit_log.note(request, "find.end-to-end-id", text=text)

    may_see = identity_of(request).may(Role.PAYMENTS)
    reach = Reach(
        console.sources,
        console.viewing,
        lambda wanted: find_groups(console, wanted),
        console.ledger,
        note if may_see else None,
    )
    return find(reach, text, is_all=is_all)
