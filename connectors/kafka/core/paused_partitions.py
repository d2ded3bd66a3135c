"""Partitions that are set aside because they cannot be read on. Pure."""

from collections.abc import Collection
from typing import NamedTuple

from domain.record import Partition


class _Problem(NamedTuple):
    text: str
    next_try_at: float


class PausedPartitions:
    """Each is tried again after `retry_seconds`: brokers that were mended, or another leader, make it readable."""

    def __init__(self, retry_seconds: float) -> None:
        self._retry_seconds = retry_seconds
        self._problems: dict[Partition, _Problem] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each."""
        return tuple(each.text for each in self._problems.values())

    def is_readable(self, partition: Partition, now: float) -> bool:
        """Nothing is known against it, or it is time to try again."""
        problem = self._problems.get(partition)
        return problem is None or now >= problem.next_try_at

    def note(self, partition: Partition, text: str, now: float) -> bool:
        """Whether this is news."""
        before = self._problems.get(partition)
        self._problems[partition] = _Problem(text, now + self._retry_seconds)
        return before is None or before.text != text

    def keep(self, partitions: Collection[Partition]) -> None:
        """Nothing is known any more against those that are not among these: they were read on, or are not read here."""
        self._problems = {each: problem for each, problem in self._problems.items() if each in partitions}
