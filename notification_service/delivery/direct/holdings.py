"""Which partitions of a topic are this worker's: what the group gives, takes away, and what cannot be taken over."""

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

from guardian.ports import TransportRefused, TransportUnavailable
from notification_service.delivery.direct.owned import Owned
from resequencer.record import Partition

_LOG = logging.getLogger("resequencer.delivery")
_LATER_SECONDS, _REFUSED_SECONDS = 0.2, 5.0


class Holdings:
    """`owned` are read and delivered. `before` were, until the clients had to be made anew; their calls under way go on.

    `refused` says of partitions why they cannot be taken over until a person acts.
    """

    def __init__(self) -> None:
        self.owned: dict[Partition, Owned] = {}
        self.before: dict[Partition, Owned] = {}
        self.refused: dict[Partition, str] = {}
        self._tries_at: dict[Partition, float] = {}

    def follow(self, assigned: Collection[Partition]) -> Sequence[Partition]:
        """Drop what is not assigned any more; return what is to be taken over now."""
        for gone in self.owned.keys() - set(assigned):
            self.owned.pop(gone).give_up()
        # New clients have no partitions before their first poll.
        for gone in self.before.keys() - set(assigned) if assigned else ():
            self.before.pop(gone).give_up()
        self.refused = {each: why for each, why in self.refused.items() if each in assigned}
        now = monotonic()
        return [each for each in sorted(assigned) if each not in self.owned and now >= self._tries_at.get(each, 0.0)]

    @contextmanager
    def taking(self, partition: Partition) -> Iterator[None]:
        """Note why the partition could not be taken over. It is tried again later, and the others are read meanwhile."""
        try:
            yield
        except TransportUnavailable as error:
            # Of one partition the last transaction may be undecided, while the others can be read.
            _LOG.info("%s is taken over a little later: %s", partition, error)
            self._tries_at[partition] = monotonic() + _LATER_SECONDS
        except TransportRefused as error:
            if self.refused.get(partition) != str(error):
                _LOG.error("%s", error)
            self.refused[partition] = str(error)
            self._tries_at[partition] = monotonic() + _REFUSED_SECONDS

    def add(self, owned: Owned) -> None:
        """Note that a partition was taken over."""
        partition = owned.state.partition
        self.owned[partition] = owned
        self.refused.pop(partition, None)
        before = self.before.pop(partition, owned)
        if before is not owned:
            before.give_up()

    def set_aside(self) -> None:
        """Note that the clients are made anew: nothing is owned until it is taken over again."""
        self.before |= self.owned
        self.owned.clear()

    def give_up(self) -> "list[asyncio.Task[None]]":
        """Give everything up; return the calls that were cancelled."""
        calls = [call for each in (*self.owned.values(), *self.before.values()) for call in each.give_up()]
        self.owned.clear()
        self.before.clear()
        return calls
