"""One unit of work: everything that is known of it, and its payment data for those who may see it."""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from notification_service.console.access.role import Role
from notification_service.console.access.roles import route
from notification_service.console.context import Console, identity_of
from notification_service.console.masking import story_for_person
from notification_service.console.orders.giving import fitting_kinds
from notification_service.console.templating import instant_shown
from notification_service.console.units.find import DAY_MS, Search, find_story
from notification_service.console.units.prospects import prospect_of
from notification_service.console.units.story import UnitStory, timeline_of
from notification_service.console.waiting.query import WaitingFilter, WaitingPage
from resequencer.record import Partition
from resequencer.unit import Unit

_LONGEST = 256 * 1024


class ShownBody(NamedTuple):
    """An object's content, or a stashed record's value, as text; `is_cut` if only its beginning is here."""

    title: str
    text: str
    size_bytes: int
    is_cut: bool


def payment_data_of(unit: Unit) -> Iterator[ShownBody]:
    """Yield the objects that the unit has taken over, then the values of its stashed records in order of arrival."""
    for kind, bodies in (("MDS", unit.data.mds), ("PDS", unit.data.pds), ("custom", unit.data.custom)):
        yield from (_shown(f"{kind} object {name}", body) for name, body in bodies)
    entries = [*unit.stash, *unit.queue, *([unit.retry.entry] if unit.retry else [])]
    records = [each.envelope.record for each in entries] + [each.record for each in unit.undecodable]
    for record in sorted(records, key=lambda each: each.origin.offset):
        yield _shown(f"stashed record {record.origin}", record.value)


def _shown(title: str, body: bytes) -> ShownBody:
    try:
        text = (
            msgspec.json.format(body, indent=2).decode() if len(body) <= _LONGEST else body[:_LONGEST].decode("utf-8", "replace")
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        text = body[:_LONGEST].decode("utf-8", "backslashreplace")
    return ShownBody(title, text, len(body), len(body) > _LONGEST)


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
            prospect=prospect_of(story, instant_shown),
            alike=None if story.is_known else _alike(console, name),
            may_see=may_see,
            rows=_ROWS,
            is_all=is_all,
            timeline=timeline_of(story),
            order_kinds=fitting_kinds(story) if _may_order(console, request) else (),
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
        return console.page(request, "payment_data.html", unit=name, partition=str(partition), bodies=bodies)

    return [
        route("/unit", unit, name="unit"),
        route("/unit/payment-data", payment_data, needs=Role.PAYMENTS, name="payment-data"),
    ]


def story_for(console: Console, unit: str, partition: Partition | None, *, is_all: bool) -> UnitStory:
    """Tell the story of the unit, searched for in one partition or in all.

    With `is_all` all dead letters are searched, and for longer; otherwise those of the last day.
    """
    search = Search(
        None if is_all else console.sources.clock.now() - DAY_MS,
        _ALL_SECONDS if is_all else _SECONDS,
        tuple(console.waiting.find_partitions(unit)),
        partition,
    )
    return find_story(console.sources, console.viewing(), unit, search)


def _may_order(console: Console, request: Request) -> bool:
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
    found = Partition.find(text)
    if text and found is None:
        raise HTTPException(400, "this is no partition; one is written as topic-number")
    return found
