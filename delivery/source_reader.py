"""Reads the sources of the jobs to one receiver into the ledger."""

import logging
from collections.abc import Callable
from time import monotonic

from delivery.errors import IntakeLost, JobRefused, LedgerUnavailable
from delivery.feeds.port import Feed
from delivery.ledger.intake import Intake
from delivery.ledger.ledger import Ledger
from delivery.settings import Receiver
from domain.errors import ResequencerError

_LOG = logging.getLogger(__name__)
_LIVE = "live"
_PORTION = 2_000
_STAND_BACK_SECONDS = 5.0
"""So long a reader leaves a source that it could not read to the readers of other processes."""


class Sources:
    """Makes feeds. `live` is the source of the jobs that never end, as far as they are of this service."""

    def __init__(self, live: str, open_feed: Callable[[str, Receiver], Feed]) -> None:
        self.live = live
        self.open_feed = open_feed


class SourceReader:
    """`taken` is called when there are new rows. Of several readers of one job, one reads at a time."""

    def __init__(self, ledger: Ledger, name: str, owner: str, sources: Sources, taken: Callable[[], object]) -> None:
        self._ledger, self._name, self._owner, self._sources, self._taken = ledger, name, owner, sources, taken
        receiver: Receiver = ledger.receivers[name]
        self._receiver = receiver
        self._feeds: dict[str, Feed] = {}
        self._intakes: dict[str, Intake] = {}
        self._told: dict[str, str] = {}
        self._not_before: dict[str, float] = {}

    @property
    def problem(self) -> str | None:
        """Why a job takes nothing in; None while all do."""
        return next((f"job {job} takes nothing in: {told}" for job, told in list(self._told.items())), None)

    def read(self) -> bool:
        """Take in a portion of each open job; return whether one of them has more.

        A source that cannot be read holds up no other: it is logged, and tried again at the next call.

        Raises:
            LedgerUnavailable: The ledger does not answer. The call may be repeated.
        """
        if self._receiver.is_live:
            self._ensure_live()
        opened = [(job, source) for job, source in self._ledger.open_jobs(self._name) if self._is_read_here(source)]
        self._leave({job for job, _ in opened})
        # Each gets its turn, also behind one that has more.
        return sum(self._read_job(job, source) for job, source in opened) > 0

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()

    def _is_read_here(self, source: str) -> bool:
        """Return whether it is a source of a job that ends, or what this service lets out."""
        kind = self._sources.live.partition(":")[0]
        return self._receiver.is_live and source == self._sources.live if source.partition(":")[0] == kind else True

    def _leave(self, opened: set[str]) -> None:
        """Close the feeds of the jobs that take nothing in any more."""
        for job in set(self._feeds) - opened:
            self._feeds.pop(job).close()
            self._intakes.pop(job, None)
        for job in set(self._told) - opened - {_LIVE}:
            del self._told[job]

    def _ensure_live(self) -> None:
        try:
            self._ledger.ensure_live(self._name, self._sources.live)
            self._told.pop(_LIVE, None)
        except JobRefused as error:
            self._tell(_LIVE, str(error))

    def _tell(self, job: str, problem: str) -> None:
        if self._told.get(job) != problem:
            _LOG.warning("job %s takes nothing in: %s", job, problem)
        self._told[job] = problem

    def _read_job(self, job: str, source: str) -> bool:
        if monotonic() < self._not_before.get(job, 0.0):
            return False
        try:
            if job not in self._feeds:
                self._feeds[job] = self._sources.open_feed(source, self._receiver)
            has_more = self._take_portion(job, self._feeds[job])
            self._told.pop(job, None)
        except LedgerUnavailable:
            raise
        except IntakeLost as error:
            _LOG.info("%s", error)
            return False
        except (ResequencerError, OSError) as error:
            self._tell(job, str(error))
            self._not_before[job] = monotonic() + _STAND_BACK_SECONDS
            return False
        return has_more

    def _take_portion(self, job: str, feed: Feed) -> bool:
        intake = self._ledger.open_intake(job, self._owner, self._intakes.pop(job, None))
        if intake is None:
            return False
        try:
            portion = feed.read(intake.positions, _PORTION)
        except BaseException:
            # Another process may be able to read it.
            self._ledger.close_intake(intake)
            raise
        if self._ledger.take_in(intake, self._name, portion):
            self._taken()
        self._intakes[job] = intake.behind(portion)
        return not portion.is_end
