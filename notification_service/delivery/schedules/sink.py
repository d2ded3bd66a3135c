"""The interface of the place to which the requests of a schedule go."""

from collections.abc import Sequence
from typing import Protocol

from notification_service.delivery.schedules.core.progress import Progress
from notification_service.delivery.schedules.core.request import Request
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
            "or rename the schedule, so that it begins anew"
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
