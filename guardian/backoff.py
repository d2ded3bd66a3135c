"""Retry with back-off: a worker repeats the same call while its source, storage or output is unavailable."""

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

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
