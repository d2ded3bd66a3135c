"""A thread of the console that looks at the service now and then, also while no page is open."""

import logging
from collections.abc import Mapping
from contextlib import closing
from threading import Event, Thread
from time import monotonic

from notification_service.connectors.dead_letters.actions import EditProposed
from notification_service.console.access.identity import Identity
from notification_service.console.dead_letters.listing import Filter, list_letters, open_letters
from notification_service.console.history import History
from notification_service.console.orders.listing import OrderState, list_orders
from notification_service.console.sources import ArchiveDistance, Sources
from notification_service.console.units.find import known_partitions
from resequencer.errors import ResequencerError
from resequencer.order import PROPOSAL_MS
from resequencer.record import Partition

_log = logging.getLogger("resequencer.console")
_EVERY_SECONDS = 5.0
_LETTERS_EVERY_SECONDS = 30.0
_PROPOSALS_EVERY_SECONDS = 5.0
_ARCHIVE_EVERY_SECONDS = 30.0
_SHARE = 50
"""Logs and the archive are looked at again only after this many times as long as it took, since they need reading."""

_READER = Identity("console", frozenset(), sends_by_itself=False)


class Sampler:
    """Keeps the history, the number of dead letters about which nothing was done, that of orders to approve, and the archive's
    distances.

    With `has_approval` some kinds of orders need a second person.
    """

    def __init__(self, sources: Sources, history: History, *, has_approval: bool = False) -> None:
        self._sources = sources
        self._history = history
        self._stopping = Event()
        self._letters_due = 0.0
        self._open_orders = sources.open_orders if has_approval else None
        self._proposals_due = 0.0
        self._archive_due = 0.0
        self._thread = Thread(target=self._run, name="sampler", daemon=True)
        self.new_dead_letters: Mapping[str, int] | None = None
        """By reason; None before they were counted, and while they cannot be read."""
        self.proposed_edits: int | None = None
        """Dead letters of which a person proposed an edit; None as above."""
        self.open_proposals: int | None = None
        """Orders that wait for a second person; None before they were counted, if they cannot be read, and without approval."""
        self.archive_distances: Mapping[Partition, ArchiveDistance] | None = None
        """None before the first look, and while the brokers or the archive cannot be read."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def sample(self) -> None:
        """Look once."""
        report = self._sources.find_report()
        if report is not None:
            self._history.add(report, self._sources.steady_clock.now())
        if monotonic() >= self._letters_due:
            self._count_letters()
        if monotonic() >= self._proposals_due:
            self.count_proposals()
        if monotonic() >= self._archive_due:
            self.look_at_archive()

    def count_proposals(self) -> None:
        """Count the proposals again."""
        if self._open_orders is None:
            return
        begun, now = monotonic(), self._sources.clock.now()
        try:
            known, _ = known_partitions(self._sources, self._sources.find_report())
            with closing(self._open_orders()) as book:
                listed = list_orders(book.orders(known, max(0, now - PROPOSAL_MS)), (), now)
            self.open_proposals = sum(each.state is OrderState.PROPOSED for each in listed)
        except ResequencerError:
            self.open_proposals = None
        finally:
            self._proposals_due = monotonic() + max(_PROPOSALS_EVERY_SECONDS, _SHARE * (monotonic() - begun))

    def look_at_archive(self) -> None:
        """Read the distances again."""
        begun = monotonic()
        try:
            self.archive_distances = self._sources.find_archive_distances()
        except ResequencerError:
            self.archive_distances = None
        finally:
            self._archive_due = monotonic() + max(_ARCHIVE_EVERY_SECONDS, _SHARE * (monotonic() - begun))

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.sample()
            except Exception:  # noqa: BLE001 - The outermost loop of the thread: the next look may succeed.
                _log.exception("the console could not look at the service; it tries again")
            self._stopping.wait(_EVERY_SECONDS)

    def _count_letters(self) -> None:
        begun = monotonic()
        try:
            with open_letters(self._sources, _READER) as store:
                found = list_letters(store, Filter(), self._sources.clock.now())
            self.new_dead_letters = dict(found.new_by_reason)
            self.proposed_edits = found.by_state.get(EditProposed.state, 0)
        except ResequencerError:
            self.new_dead_letters = self.proposed_edits = None
        finally:
            self._letters_due = monotonic() + max(_LETTERS_EVERY_SECONDS, _SHARE * (monotonic() - begun))
