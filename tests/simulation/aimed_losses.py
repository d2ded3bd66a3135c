"""A storage that loses its last commits soon after they were made, where the loss does the most harm."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_STEPS, _COMMITS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 2, 3)
_TURNS = (0, 8, 16, 32)


class AimedLosses:
    """Now and then the storage is backed up right before a step that changes it. Some steps of any worker, or some commits, later
    the storage goes back to the backup: while the next commit is decided, before the committed records have left, or after that.

    Two workers may then stand still for a while and continue without knowing of the loss: the worker at whose step the storage
    goes back, and the first worker that takes a partition over afterwards.
    """

    def __init__(self, random: Random, keep_backup: Callable[[], None], forget: Callable[[], None]) -> None:
        self._random = random
        self._keep_backup = keep_backup
        self._forget = forget
        self._likely = random.choice((0.4, 1.0))
        self._backs_up_before = ""
        self._backs_up_after: int | None = None
        self._forgets_before = ""
        self._forgets_after: int | None = None
        self._is_next_late = False

    def aim(self) -> None:
        """Decide, when a period of faults begins, whether one of its first changes will be forgotten."""
        if self._forgets_after is None and self._random.random() < self._likely:
            self._backs_up_before = self._random.choice(("open", "commit"))
            self._backs_up_after = self._random.choice((0, 0, 0, 1, 2))

    def look(self, when: str, name: str) -> int:
        """Return for how many turns the worker at this step stands still. Called `before` and `after` each step (`when`)."""
        if self._forgets_after is not None:
            self._forgets_after -= not self._forgets_before or (when == "before" and name == self._forgets_before)
            return self._random.choice(_TURNS) if self._forgets_after == 0 and self.forget_at_last() else 0
        if when == "before" and name == self._backs_up_before and self._backs_up_after is not None:
            self._back_up()
        if when == "before" and name == "open" and self._is_next_late:
            self._is_next_late = False
            return self._random.choice(_TURNS)
        return 0

    def forget_at_last(self) -> bool:
        """Go back to the backup now, if that is still due. Return whether it was."""
        is_due, self._forgets_after = self._forgets_after is not None, None
        if is_due:
            self._forget()
            self._is_next_late = True
        return is_due

    def _back_up(self) -> None:
        """Back the storage up now, or before a later one of these steps."""
        assert self._backs_up_after is not None
        self._backs_up_after -= 1
        if self._backs_up_after < 0:
            self._keep_backup()
            self._forgets_before = self._random.choice(("", "commit"))
            self._forgets_after = self._random.choice(_COMMITS if self._forgets_before else _STEPS)
            self._backs_up_after = None
