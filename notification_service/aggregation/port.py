"""The interface of a store: where commands come from, where values are, and how a turn is committed."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from guardian.ports import Polled
from notification_service.aggregation.core import Turn, Values
from resequencer.record import Partition


class Step(NamedTuple):
    """What is committed for a partition: the turn, and the next offset to read, behind its commands."""

    turn: Turn
    next_offset: int


class Store(Protocol):
    """Used from one thread. Any call may raise the errors of a transport (guardian/ports.py)."""

    @property
    def shares_values(self) -> bool:
        """Whether all partitions have the same values. Then they are committed one after the other."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Sentences for an operator about problems that do not stop the store."""
        ...

    def assignment(self) -> Collection[Partition]:
        """Return the partitions of commands that are this worker's now."""
        ...

    def take_over(self, partition: Partition) -> int:
        """Make the values of a partition ready, as they are after the last transaction; return the next offset of its commands.

        What a call of `commit` with an unknown outcome came to is known after it.
        """
        ...

    def values(self, partition: Partition) -> Values:
        """Return the values of a partition that was taken over."""
        ...

    def let_go(self, partition: Partition) -> None:
        """Forget a partition, because it is another worker's, or because it must be taken over again."""
        ...

    def poll(self, max_records: int, timeout_ms: int) -> Polled: ...

    def commit(self, steps: Mapping[Partition, Step]) -> None:
        """Commit values, output and offsets: all of it or nothing. After an error the partitions must be taken over again.

        Raises:
            PublishRefused: The partitions are another worker's by now.
        """
        ...

    def close(self) -> None: ...
