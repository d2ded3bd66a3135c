"""A thread of the console that looks at the service now and then, also while no page is open."""

import logging
from collections.abc import Mapping
from threading import Event, Thread
from time import monotonic

from console.access.identity import Identity
from console.dead_letter_list import Filter, list_letters, open_letters
from console.history import History
from console.sources import Sources
from domain.errors import ResequencerError

_log = logging.getLogger("resequencer.console")
_EVERY_SECONDS = 5.0
_LETTERS_EVERY_SECONDS = 30.0
_SHARE = 50
"""Dead letters are counted again only after this many times as long as it took: their number is not known without reading all."""

_READER = Identity("console", frozenset(), sends_by_itself=False)


class Sampler:
    """Keeps the history, and the number of dead letters about which nothing was done, by reason."""

    def __init__(self, sources: Sources, history: History) -> None:
        self._sources = sources
        self._history = history
        self._stopping = Event()
        self._letters_due = 0.0
        self._thread = Thread(target=self._run, name="sampler", daemon=True)
        self.new_dead_letters: Mapping[str, int] | None = None
        """By reason; None before they were counted, and while they cannot be read."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def sample(self) -> None:
        """Look once."""
        report = self._sources.find_report()
        if report is not None:
            self._history.add(report, self._sources.clock.now())
        if monotonic() >= self._letters_due:
            self._count_letters()

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
                self.new_dead_letters = dict(list_letters(store, Filter()).new_by_reason)
        except ResequencerError:
            self.new_dead_letters = None
        finally:
            self._letters_due = monotonic() + max(_LETTERS_EVERY_SECONDS, _SHARE * (monotonic() - begun))
