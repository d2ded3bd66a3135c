"""Follows the current release in a thread beside the cycles: it reads and verifies each new release."""

import logging
from threading import Event, Lock, Thread

from notification_service.lookups.directory import LookupsDirectory
from notification_service.lookups.manifest import Pointer
from notification_service.lookups.release import Release, open_release
from notification_service.lookups.shapes import NoRelease, ReleaseRefused
from resequencer.errors import words_of

_LONGEST_PAUSE = 100
"""The longest pause before a refused release is tried again, in looks."""

_log = logging.getLogger("resequencer.lookups")


class Follower:
    """Opens each new current release. A refused release is logged once.

    `in_use` is the release in use, None if nothing was published yet. The worker's thread calls only `take` and `close`; `take`
    never waits for a file.
    """

    def __init__(self, directory: LookupsDirectory, in_use: Pointer | None, every_ms: int) -> None:
        self._directory = directory
        self._offered = in_use
        self._refused: Pointer | None = None
        self._pause = self._left_alone = 0
        self._every_ms = every_ms
        self._lock = Lock()
        self._next: Release | None = None
        self._complaint: str | None = None
        self._ending = Event()
        self._thread = Thread(target=self._run, name="lookups", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> Release | None:
        """Return the new release to use, None if there is none. The caller must close it."""
        with self._lock:
            taken, self._next = self._next, None
        return taken

    def close(self) -> None:
        """Stop following. A release that is being verified at the moment may stay open until the process ends."""
        self._ending.set()
        taken = self.take()
        if taken is not None:
            taken.close()

    def look(self) -> None:
        """Look once: open the current release if it is new and complete."""
        try:
            pointer = self._directory.get_current()
            if pointer == self._offered:
                self._complaint = self._refused = None
            elif not self._skip_refused(pointer):
                self._offer(open_release(self._directory, pointer))
                self._offered, self._complaint = pointer, None
        except NoRelease as error:
            if self._offered is not None:
                self._complain(str(error))
        except (ReleaseRefused, OSError) as error:
            self._complain(str(error))
        except Exception as error:  # noqa: BLE001 - Otherwise the thread would end, and later releases would be missed.
            self._complain(words_of(error))

    def _skip_refused(self, pointer: Pointer) -> bool:
        """Whether to skip a refused release now. It is tried again at growing intervals: it is slow to read, but may recover."""
        if pointer != self._refused:
            self._refused, self._pause, self._left_alone = pointer, 1, 0
        elif self._left_alone < self._pause:
            self._left_alone += 1
            return True
        else:
            self._pause, self._left_alone = min(2 * self._pause, _LONGEST_PAUSE), 0
        return False

    def _offer(self, opened: Release) -> None:
        with self._lock:
            unused, self._next = self._next, opened
        if unused is not None:
            unused.close()

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            _log.warning("the published lookups cannot be used, the present ones stay in use: %s", text)
        self._complaint = text

    def _run(self) -> None:
        while not self._ending.wait(self._every_ms / 1_000):
            self.look()
