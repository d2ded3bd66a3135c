"""One attempt to commit: written under names of its own, then made valid by the counter. It may be made again and again."""

from contextlib import suppress

from domain.errors import OwnershipLost
from storage.infinispan.commit import Prepared
from storage.infinispan.layout.segment import CommitVersion
from storage.infinispan.layout.value_framing import cut
from storage.infinispan.partition_keys import PartitionKeys
from storage.port import StorageUnavailable


class CommitAttempt:
    """Remembers how far it came. Until the counter moved, nothing that counts has changed."""

    def __init__(self, link: PartitionKeys, expected: CommitVersion, prepared: Prepared) -> None:
        self._link = link
        self._expected = expected
        self._written = 0
        self._is_unanswered = False
        self.prepared = prepared

    def make(self) -> None:
        """Returns once the commit counts.

        Raises:
            OwnershipLost: It never will, for the partition moved.
            StorageUnavailable: No answer; to be made again.
        """
        for value in self.prepared.values[self._written :]:
            self._link.write(value)
            self._written += 1
        if not self._swap_version() and (now := self._link.find_version()) != self.prepared.version:
            self._clear_away()
            raise OwnershipLost(f"we are at {self._expected}, the counter of {self._link.name} is at {now}")

    def _swap_version(self) -> bool:
        try:
            return self._link.move(self._expected, self.prepared.version)
        except StorageUnavailable:
            self._is_unanswered = True
            raise

    def _clear_away(self) -> None:
        """What was written is needed by nobody. If an answer was lost the commit may have counted: a newer owner built on it."""
        if not self._is_unanswered:
            with suppress(StorageUnavailable):
                for value in self.prepared.values:
                    for name, _ in cut(value):
                        self._link.delete(name)
