"""Reads the sources of the jobs to one receiver into the ledger."""

import logging
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from notification_service.delivery.errors import IntakeLost, LedgerUnavailable
from notification_service.delivery.feed import Feed
from notification_service.delivery.ledger.intake import Intake
from notification_service.delivery.ledger.jobs import Former
from notification_service.delivery.ledger.ledger import Ledger
from notification_service.delivery.settings import Receiver
from resequencer.errors import ResequencerError

_LOG = logging.getLogger("resequencer.delivery")
_LIVE = "live"
_PORTION = 2_000
_STAND_BACK_SECONDS = 5.0
"""So long a reader leaves a source that it could not read to the readers of other processes."""


class Sources:
    """Makes feeds. `live` is the source of the jobs that never end, as far as they are of this service; `former` is its name of
    before.
    """

    def __init__(self, live: str, open_feed: Callable[[str, Receiver], Feed], former: Former | None = None) -> None:
        self.live, self.former = live, former
        self.open_feed = open_feed


class SourceReader:
    """`taken` is called when there are new rows. Of several readers of one job, one reads at a time."""

    def __init__(self, ledger: Ledger, name: str, owner: str, sources: Sources, taken: Callable[[], object]) -> None:
        self._ledger, self._name, self._owner, self._sources, self._taken = ledger, name, owner, sources, taken
        receiver: Receiver = ledger.receivers[name]
        self._receiver = receiver
        self._feeds: dict[str, Feed] = {}
        self._intakes: dict[str, Intake] = {}
        self._problems: dict[str, str] = {}
        self._lacks: dict[str, str | None] = {}
        self._not_before: dict[str, float] = {}

    @property
    def problem(self) -> str | None:
        """Why a job takes nothing in; None while all do."""
        return next((f"job {job} takes nothing in: {problem}" for job, problem in list(self._problems.items())), None)

    def read(self) -> bool:
        """Take in a portion of each open job; return whether one of them has more.

        A source that cannot be read blocks no other: it is logged, and tried again at the next call.

        Raises:
            LedgerUnavailable: The ledger does not answer. The call may be repeated.
        """
        is_live = self._receiver.is_live and self._ensure_live()
        found = self._ledger.open_jobs(self._name)
        opened = [(job, source) for job, source in found if self._is_read_here(source, is_live=is_live)]
        self._leave({job for job, _ in opened})
        # Each gets its turn, also behind one that has more.
        return sum(self._read_job(job, source) for job, source in opened) > 0

    def close(self) -> None:
        """Close the feeds, and give the rights to read back: the next process need not wait until they are over."""
        for feed in self._feeds.values():
            feed.close()
        with suppress(ResequencerError):
            for intake in list(self._intakes.values()):
                self._ledger.close_intake(intake)

    def _is_read_here(self, source: str, *, is_live: bool) -> bool:
        """Return whether it is a source of a job that ends, or what this service lets out."""
        kind = self._sources.live.partition(":")[0]
        return is_live and source == self._sources.live if source.partition(":")[0] == kind else True

    def _leave(self, opened: set[str]) -> None:
        """Close the feeds of the jobs that take nothing in any more."""
        for job in set(self._feeds) - opened:
            self._feeds.pop(job).close()
            self._intakes.pop(job, None)
        for job in set(self._problems) - opened - {_LIVE}:
            del self._problems[job]

    def _ensure_live(self) -> bool:
        """Return whether this service may read what it lets out."""
        try:
            self._ledger.ensure_live(self._name, self._sources.live, self._sources.former)
        except LedgerUnavailable:
            raise
        except (ResequencerError, OSError) as error:
            self._note_problem(_LIVE, str(error))
            return False
        self._problems.pop(_LIVE, None)
        return True

    def _note_problem(self, job: str, problem: str) -> None:
        if self._problems.get(job) != problem:
            _LOG.warning("job %s takes nothing in: %s", job, problem)
        self._problems[job] = problem

    def _note_missing(self, job: str, lacks: str | None) -> None:
        """Log what is missing, once. All processes find it in the ledger."""
        if lacks is not None and self._lacks.get(job) != lacks:
            remedy = f"put it back there, or accept the loss: resequencer delivery accept-loss {job} --because TEXT"
            _LOG.error("job %s lacks %s: %s", job, lacks, remedy)
        self._lacks[job] = lacks

    def _read_job(self, job: str, source: str) -> bool:
        if monotonic() < self._not_before.get(job, 0.0):
            return False
        try:
            if job not in self._feeds:
                self._feeds[job] = self._sources.open_feed(source, self._receiver)
            has_more = self._take_portion(job, self._feeds[job])
            self._problems.pop(job, None)
        except LedgerUnavailable:
            raise
        except IntakeLost as error:
            _LOG.info("%s", error)
            return False
        except (ResequencerError, OSError) as error:
            self._note_problem(job, str(error))
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
        if portion.gone in (None, intake.gone):
            # Otherwise all is asked again: of files that have gone the ledger forgets the positions some time.
            self._intakes[job] = intake.behind(portion)
        if portion.missing is not None:
            self._note_missing(job, portion.lacks)
        if portion.missing and not portion.items:
            self._ledger.close_intake(intake)  # Another process may be able to read what is missing here.
        return not portion.is_end and not (portion.missing and not portion.items)
