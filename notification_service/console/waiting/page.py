"""The waiting units: by age, filtered, a page at a time, from the console's copy of the index."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from notification_service.console.access.roles import route
from notification_service.console.context import Console
from notification_service.console.units.prospects import find_service_hindrance
from notification_service.console.waiting.query import BadPlace, WaitingFilter
from notification_service.console.waiting.refresher import WaitingAnswer
from notification_service.status.service_report import NOT_RUNNING, ServiceReport
from resequencer.clock import Instant
from resequencer.keys.value_types import Duration, Mismatch
from resequencer.storage_port import WaitKind

_AGE = Duration("1s", "3650d")
_LONGEST = 512
_ROWS = 50
_OLD_MS = 30_000
"""A copy that is older gets a word of warning."""


class Asked(NamedTuple):
    """The parameters of the page, as they were typed."""

    waits_for: str
    kind: str
    partition: str
    older: str
    unit: str
    after: str | None

    def filtered(self, now: Instant) -> WaitingFilter:
        """Raises Mismatch: The age is no duration."""
        before = now - int(_AGE.read(self.older) or 0) if self.older else None
        return WaitingFilter(self.waits_for, self.kind, self.partition, self.unit, before)

    @property
    def is_filtered(self) -> bool:
        return any(self[:5])

    def url_after(self, place: str) -> str:
        """Return the address of the page behind this place, with the same filter."""
        names = {"for": self.waits_for, "kind": self.kind, "partition": self.partition, "older": self.older, "id": self.unit}
        return "/waiting?" + urlencode({**{name: value for name, value in names.items() if value}, "after": place})


def waiting_routes(console: Console) -> list[Route]:
    def waiting(request: Request) -> Response:
        service, asked, problem = console.sources.find_report(), _asked(request), None
        if not console.waiting.is_stored:
            return console.page(request, "waiting_reported.html", service=service, hindrance=find_service_hindrance(service))
        now = console.sources.clock.now()
        try:
            wanted = asked.filtered(now)
        except Mismatch:
            wanted, problem = WaitingFilter(), f"“older than” needs a number with a unit, such as 10m: {asked.older}"
        try:
            answer = console.waiting.ask(wanted, asked.after, _ROWS)
        except BadPlace as error:
            raise HTTPException(400, "this address names no page; begin at the first one") from error
        return console.page(
            request,
            "waiting.html",
            answer=answer,
            hindrance=find_service_hindrance(service),
            found=answer.page,
            asked=asked,
            problem=problem,
            kinds=[each.value for each in WaitKind],
            partitions=[each.partition for each in answer.partitions],
            slots=slots_of(service),
            is_old=_is_old(answer, now),
            next_page=None if answer.page.after is None else asked.url_after(answer.page.after),
        )

    return [route("/waiting", waiting, name="waiting")]


def slots_of(service: ServiceReport | None) -> Mapping[str, int]:
    """Return the slot of the worker that has each partition now."""
    if service is None or service.state == NOT_RUNNING:
        return {}
    return {each.partition: each.slot for each in service.whole.partitions}


def _asked(request: Request) -> Asked:
    given = request.query_params

    def text(name: str) -> str:
        return given.get(name, "").strip()[:_LONGEST]

    return Asked(text("for"), text("kind"), text("partition"), text("older"), text("id"), given.get("after"))


def _is_old(answer: WaitingAnswer, now: Instant) -> bool:
    return any(each.as_of is not None and now - each.as_of > _OLD_MS for each in answer.partitions)
