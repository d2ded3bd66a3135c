"""Partitions that are paused because they cannot be read on. Pure."""

from collections.abc import Collection
from typing import NamedTuple

from resequencer.record import Partition


class _Problem(NamedTuple):
    text: str
    next_try_at: float


class PausedPartitions:
    """Tries a paused partition again after `retry_seconds`: it is readable after a repair, or with another leader."""

    def __init__(self, retry_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._problems: dict[Partition, _Problem] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence for each paused partition."""
        return tuple(each.text for each in self._problems.values())

    def is_readable(self, partition: Partition, now: float) -> bool:
        """Return whether the partition is not paused, or due for another try."""
        problem = self._problems.get(partition)
        return problem is None or now >= problem.next_try_at

    def note(self, partition: Partition, text: str, now: float) -> bool:
        """Pause the partition for the reason in `text`; return whether the reason is new."""
        before = self._problems.get(partition)
        self._problems[partition] = _Problem(text, now + self._retry_seconds)
        return before is None or before.text != text

    def keep(self, partitions: Collection[Partition]) -> None:
        """Forget the partitions that are not among these: they were read on, or are not read by this worker."""
        self._problems = {each: problem for each, problem in self._problems.items() if each in partitions}
