"""Retry with back-off: a worker repeats the same call while its source, storage or output is unavailable."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from traceback import extract_tb
from typing import TypeVar

import msgspec

from resequencer.clock import Instant
from resequencer.errors import ResequencerError, TransientError, Withheld
from resequencer.storage_port import StorageRefused, StorageUnavailable

_Answer = TypeVar("_Answer")
_log = logging.getLogger("resequencer.guardian")


class Stopped(ResequencerError):
    """The worker had to stop while a server was unavailable. The unanswered call is repeated after a restart."""


class BackoffSettings(msgspec.Struct, frozen=True):
    """The pause between two tries doubles from `first_pause_ms` up to `longest_pause_ms`."""

    first_pause_ms: int = 100
    longest_pause_ms: int = 5_000


class RetryWithBackoff:
    """Repeats a call that fails with a transient error. The log reports the first failure, another server's failure, and the end.

    `unavailable` names what does not answer at the moment (`storage`, `output`, `source`), None when everything answers. With
    `waits_for_people` a call is also repeated after `Withheld`, which an operator has to correct. So a deleted topic or a new
    password does not end a service that runs.
    """

    def __init__(self, settings: BackoffSettings, wait: Callable[[int], None], is_stopping: Callable[[], bool]) -> None:
        self._settings = settings
        self._wait = wait
        self._is_stopping = is_stopping
        self.waits_for_people = False
        self.unavailable: str | None = None
        self.reason: str | None = None

    def is_stopping(self) -> bool:
        """Whether the worker has to stop."""
        return self._is_stopping()

    def until_answered(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        """Return the answer of `call`, however long it takes. A failure is reported for `what`, or for the storage if it raised.

        Raises:
            Stopped: The worker has to stop, and the call was not answered.
        """
        pause_ms = self._settings.first_pause_ms
        while True:
            try:
                answer = call()
            except (TransientError, Withheld) as error:
                if not self.can_wait_for(error):
                    self._note_answer()
                    raise
                self._note("storage" if is_of_storage(error) else what, error)
                if self._is_stopping():
                    raise Stopped(f"stopped while the {self.unavailable} was unavailable: {error}") from error
                self._wait(pause_ms)
                pause_ms = min(2 * pause_ms, self._settings.longest_pause_ms)
            except ResequencerError:
                self._note_answer()
                raise
            else:
                self._note_answer()
                return answer

    def can_wait_for(self, error: ResequencerError) -> bool:
        return isinstance(error, TransientError) or self.waits_for_people

    def _note_answer(self) -> None:
        if self.unavailable is not None:
            _log.warning("the %s answers again", self.unavailable)
            self.unavailable = self.reason = None

    def _note(self, what: str, error: ResequencerError) -> None:
        if self.unavailable != what:
            _log.warning("the %s is unavailable, retrying until it answers: %s", what, error)
        self.unavailable, self.reason = what, str(error)


def is_of_storage(error: Exception) -> bool:
    return isinstance(error, StorageUnavailable | StorageRefused)


_INTERVAL_MS = 60_000
_MAX_KINDS = 200
_REST = "of other kinds"
_LOG = logging.getLogger("resequencer.problems")


class LogRateLimit:
    """Log a problem once and then count it, so that a million failures do not write a million lines.

    `note` and `tell` are called from one thread.
    """

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._more: Counter[str] = Counter()
        self._last: dict[str, str] = {}
        self._counted_from: Instant = 0

    def note(self, kind: str, text: str, now: Instant, places: Mapping[str, object], error: BaseException | None = None) -> None:
        """Log the first problem of a kind, with the error's stack, and count the others."""
        if kind not in self._known and len(self._known) < _MAX_KINDS:
            self._known.add(kind)
            _LOG.warning("%s", text, exc_info=error, extra=dict(places))
            return
        if not self._more:
            self._counted_from = now
        kind = kind if kind in self._known else _REST
        self._more[kind] += 1
        self._last[kind] = text

    def tell(self, now: Instant) -> None:
        """Log the counts once a minute. Call it from time to time. A clock that was set back ends the minute early."""
        if not self._more or 0 <= now - self._counted_from < _INTERVAL_MS:
            return
        seconds = max(0, now - self._counted_from) // 1_000
        for kind, count in self._more.items():
            _LOG.warning("%s: %d more within %d s; the last: %s", kind, count, seconds, self._last[kind])
        self._more.clear()
        self._last.clear()


def kind_of(error: BaseException) -> str:
    """The kind of an error: the type of its cause, or its own, and the line that raised it."""
    cause = error.__cause__ or error
    frames = extract_tb(cause.__traceback__)
    return f"{type(cause).__name__} at {frames[-1].filename}:{frames[-1].lineno}" if frames else type(cause).__name__
