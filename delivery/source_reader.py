"""Reads the sources of the jobs to one receiver into the ledger."""

import logging
from collections.abc import Callable

from delivery.errors import IntakeLost, JobRefused, LedgerUnavailable
from delivery.feeds.port import Feed
from delivery.ledger.ledger import Ledger
from delivery.settings import Receiver
from domain.errors import ResequencerError

_LOG = logging.getLogger(__name__)
_PORTION = 2_000


class Sources:
    """Makes feeds. `live` is the source of the jobs that never end."""

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
        self._told: dict[str, str] = {}

    def read(self) -> bool:
        """Take in a portion of each open job; return whether one of them has more.

        A source that cannot be read holds up no other: it is logged, and tried again at the next call.

        Raises:
            LedgerUnavailable: The ledger does not answer. The call may be repeated.
        """
        if self._receiver.is_live:
            self._ensure_live()
        opened = self._ledger.open_jobs(self._name)
        if not self._receiver.is_live:
            opened = [(job, source) for job, source in opened if source != self._sources.live]
        # Each gets its turn, also behind one that has more.
        return sum(self._read_job(job, source) for job, source in opened) > 0

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()

    def _ensure_live(self) -> None:
        try:
            self._ledger.ensure_live(self._name, self._sources.live)
        except JobRefused as error:
            self._tell("live", str(error))

    def _tell(self, job: str, problem: str) -> None:
        if self._told.get(job) != problem:
            _LOG.warning("job %s takes nothing in: %s", job, problem)
        self._told[job] = problem

    def _read_job(self, job: str, source: str) -> bool:
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
            return False
        return has_more

    def _take_portion(self, job: str, feed: Feed) -> bool:
        intake = self._ledger.open_intake(job, self._owner)
        if intake is None:
            return False
        portion = feed.read(intake.positions, _PORTION)
        if self._ledger.take_in(intake, self._name, portion):
            self._taken()
        return not portion.is_end
