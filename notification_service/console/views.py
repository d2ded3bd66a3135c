"""Lends views of the storage. Each request gets its own view, so requests do not wait for each other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Condition
from time import monotonic
from typing import NoReturn

from resequencer.storage_port import StorageUnavailable
from storage.view_port import StorageView

MOST = 4
"""Views at once. Each keeps its connections, and with Infinispan some memory."""

_WAIT_SECONDS = 2.0


class SharedViews:
    """Lends views to threads. Used from several threads."""

    def __init__(self, open_view: Callable[[], StorageView], wait_seconds: float = _WAIT_SECONDS) -> None:
        self._open_view = open_view
        self._wait_seconds = wait_seconds
        self._returned = Condition()
        self._idle: list[StorageView] = []
        self._lent = 0
        self._is_closed = False

    @contextmanager
    def lent(self) -> Iterator[StorageView]:
        """Lend a view. If all are in use for too long, it is one that says so: its methods raise StorageUnavailable."""
        view = self._take()
        try:
            yield view or _NoneFree()
        finally:
            if view is not None:
                self._give_back(view)

    def close(self) -> None:
        """Close the views; one that is in use is closed when it is given back."""
        with self._returned:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    def _take(self) -> StorageView | None:
        until = monotonic() + self._wait_seconds
        with self._returned:
            while not self._idle and self._lent >= MOST:
                if not self._returned.wait(until - monotonic()):
                    return None
            self._lent += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._open_view()
        except BaseException:
            self._give_back(None)
            raise

    def _give_back(self, view: StorageView | None) -> None:
        with self._returned:
            self._lent -= 1
            if view is not None and not self._is_closed:
                self._idle.append(view)
                view = None
            self._returned.notify()
        if view is not None:
            view.close()


class _NoneFree:
    """Stands for a view that could not be had in time."""

    @staticmethod
    def find_header(*_: object) -> NoReturn:
        raise StorageUnavailable(f"{MOST} other pages wait for the storage, which does not answer them; try again in a moment")

    find_unit = find_waiting = find_header

    def close(self) -> None:
        pass
