"""The interface of the place to which the requests of a schedule go."""

from collections.abc import Sequence
from typing import Protocol

from notification_service.delivery.core.jobs import Item
from notification_service.delivery.errors import IntakeLost
from notification_service.delivery.ledger.intake import Intake, Portion
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.schedules.core import Progress, Request, decode_progress
from notification_service.delivery.schedules.settings import Waiting
from notification_service.events.identifiers import MAX_LENGTH, find_id_flaw
from resequencer.errors import ResequencerError, TransientError


class ScheduleBusy(TransientError):
    """Another worker makes the requests of the schedule. Nothing was stored."""

    def __init__(self, schedule: str) -> None:
        super().__init__(f"another worker makes the requests of schedule {schedule}")


class ProgressUnreadable(ResequencerError):
    """The stored progress of a schedule is none that this version knows."""

    def __init__(self, schedule: str, where: str, problem: str) -> None:
        super().__init__(
            f"schedule {schedule}: its progress in {where} cannot be read ({problem}); start the version that wrote it, "
            "or rename the schedule, so that it begins again"
        )


class RequestSink(Protocol):
    """Takes requests together with the progress of the schedule. Of several workers one at a time does so.

    Raises:
        TransientError: Of each method: the sink does not answer; whether the last requests were stored is not known.
        ProgressUnreadable: Of `find` and `begin`.
    """

    def find(self) -> Progress | None:
        """Return the stored progress, None if there is none. Other workers are not disturbed."""
        ...

    def begin(self) -> Progress | None:
        """Take the right to store, and return the stored progress. Raises ScheduleBusy, too."""
        ...

    def store(self, requests: Sequence[Request], progress: Progress) -> None:
        """Store the requests and the progress behind them, all or nothing.

        Raises:
            ScheduleBusy: Another worker has taken the right.
        """
        ...

    def count_waiting(self) -> int | None:
        """Return how many requests wait for the receiver; None if it is not known here."""
        ...

    def end(self) -> None:
        """Give the right back."""
        ...


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
