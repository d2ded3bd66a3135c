"""A storage that forgets where it hurts most: what was committed last, soon after it was."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_STEPS, _COMMITS = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 2, 3)
_TURNS = (0, 8, 16, 32)


class AimedLosses:
    """Now and then the storage is backed up right before a step that changes it, and goes back to that so many steps of anybody,
    or so many commits, later: while the next commit is decided, before what was committed has left, or after it has.

    Who knows nothing of it goes on late: the one who is there when it happens, and the one who is to take over first then.
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
        """A while of injected_faults begins: perhaps one of its first changes will be forgotten."""
        if self._forgets_after is None and self._random.random() < self._likely:
            self._backs_up_before = self._random.choice(("open", "commit"))
            self._backs_up_after = self._random.choice((0, 0, 0, 1, 2))

    def look(self, when: str, name: str) -> int:
        """Called at each step, `when` is before or after it: how many turns whoever is there stands still then."""
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
        """What is to be forgotten and was not yet: whether anything was."""
        is_due, self._forgets_after = self._forgets_after is not None, None
        if is_due:
            self._forget()
            self._is_next_late = True
        return is_due

    def _back_up(self) -> None:
        """Now, or before a later one of these steps."""
        assert self._backs_up_after is not None
        self._backs_up_after -= 1
        if self._backs_up_after < 0:
            self._keep_backup()
            self._forgets_before = self._random.choice(("", "commit"))
            self._forgets_after = self._random.choice(_COMMITS if self._forgets_before else _STEPS)
            self._backs_up_after = None
