"""Requests of a schedule as rows of the ledger: rows and progress are one transaction."""

from collections.abc import Sequence

from notification_service.delivery.core.rows import Item
from notification_service.delivery.errors import IntakeLost
from notification_service.delivery.ledger.intake import Intake, Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.schedules.core.progress import Progress, decode_progress
from notification_service.delivery.schedules.core.request import Request
from notification_service.delivery.schedules.settings import Waiting
from notification_service.delivery.schedules.sink import ProgressUnreadable, ScheduleBusy
from notification_service.events.identifiers import MAX_LENGTH, find_id_flaw


class LedgerSink:
    """The rows belong to a job of the schedule, which never ends. `owner` names the worker."""

    def __init__(self, ledger: Ledger, schedule: str, receiver: str, owner: str, waiting: Waiting = Waiting.ALL) -> None:
        self._ledger, self._schedule, self._receiver, self._owner = ledger, schedule, receiver, owner
        self._replaces = waiting is Waiting.NEWEST
        self._intake: Intake | None = None

    def find(self) -> Progress | None:
        return self._decoded(self._ledger.find_progress(self._job()))

    def begin(self) -> Progress | None:
        self._intake = self._ledger.open_intake(self._job(), self._owner)
        if self._intake is None:
            raise ScheduleBusy(self._schedule)
        return self._decoded(self._intake.progress)

    def store(self, requests: Sequence[Request], progress: Progress) -> None:
        assert self._intake is not None, "it has begun"
        items = [_item_of(each, progress) for each in requests]
        portion = Portion(items, {}, is_end=progress.is_done, progress=progress.encode(), replaces=self._replaces)
        try:
            self._ledger.take_in(self._intake, self._receiver, portion)
        except IntakeLost as error:
            self._intake = None
            raise ScheduleBusy(self._schedule) from error

    def end(self) -> None:
        intake, self._intake = self._intake, None
        if intake is not None:
            self._ledger.close_intake(intake)

    def count_waiting(self) -> int:
        return self._ledger.count_open(self._job())

    def _job(self) -> str:
        return self._ledger.schedule_job(self._schedule, self._receiver)

    def _decoded(self, stored: str | None) -> Progress | None:
        try:
            return None if stored is None else decode_progress(stored)
        except ValueError as error:
            raise ProgressUnreadable(self._schedule, "the ledger", str(error)) from error


def _item_of(request: Request, progress: Progress) -> Item:
    flaw = find_id_flaw(request.key)
    return Item(
        dedup=request.id,
        key=request.key if flaw is None else request.key[:MAX_LENGTH].replace("\x00", ""),
        value=request.value,
        headers=request.headers,
        position=f"{progress.tick}/{request.key}".replace("\x00", "")[:MAX_LENGTH],
        notification_id=request.id,
        defect=None if flaw is None else f"the key of the request {flaw}",
    )
