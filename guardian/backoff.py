"""Trying the same again until it is answered: what a worker does while its storage or its output is away."""

import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from domain.errors import ResequencerError, TransientError, Withheld
from storage.port import StorageRefused, StorageUnavailable

_Answer = TypeVar("_Answer")
_log = logging.getLogger("resequencer.guardian")


class Stopped(ResequencerError):
    """The worker was told to stop while something was away. What was not answered is done again after a restart."""


class BackoffSettings(msgspec.Struct, frozen=True):
    """The pause between two tries doubles from `first_pause_ms` up to `longest_pause_ms`."""

    first_pause_ms: int = 100
    longest_pause_ms: int = 5_000


class RetryWithBackoff:
    """Repeats a call that failed for a while; says so when it begins to fail, or something else does, and when it is answered.

    `unavailable` names what does not answer at the moment (`storage`, `output`, `source`), None when everything answers. With
    `waits_for_people` what is withheld is waited for too: a service that runs is not ended by a topic that was deleted, or by a
    new password.
    """

    def __init__(self, settings: BackoffSettings, wait: Callable[[int], None], is_stopping: Callable[[], bool]) -> None:
        self._settings = settings
        self._wait = wait
        self._is_stopping = is_stopping
        self.waits_for_people = False
        self.unavailable: str | None = None
        self.reason: str | None = None

    def until_answered(self, what: str, call: Callable[[], _Answer]) -> _Answer:
        """The answer of `call`, however long it takes. `what` is away when it fails, unless the storage says that it is.

        Raises:
            Stopped: The worker is to stop, and the call was not answered.
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
                    raise Stopped(f"told to stop while the {self.unavailable} was away: {error}") from error
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
            _log.warning("the %s is back", self.unavailable)
            self.unavailable = self.reason = None

    def _note(self, what: str, error: ResequencerError) -> None:
        if self.unavailable != what:
            _log.warning("the %s is away, trying again until it is back: %s", what, error)
        self.unavailable, self.reason = what, str(error)


def is_of_storage(error: Exception) -> bool:
    return isinstance(error, StorageUnavailable | StorageRefused)
