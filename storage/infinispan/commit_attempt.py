"""One attempt to commit: its values are written under unique names, then the counter makes it valid. It may be repeated."""

from contextlib import suppress
from functools import partial

from resequencer.errors import OwnershipLost
from resequencer.storage_port import StorageUnavailable
from storage.infinispan.commit import Prepared
from storage.infinispan.keys import PartitionKeys
from storage.infinispan.layout.segment import CommitVersion
from storage.infinispan.layout.value_framing import cut


class CommitAttempt:
    """Remembers its progress. Until the counter has moved, nothing valid has changed."""

    def __init__(self, link: PartitionKeys, expected: CommitVersion, prepared: Prepared) -> None:
        self._link = link
        self._expected = expected
        root, *others = prepared.values
        self._unwritten = [partial(link.write, root), partial(link.write_all, others)]
        self._is_unanswered = False
        self.prepared = prepared

    def make(self) -> None:
        """Write the values and move the counter. Returns once the commit is valid.

        Raises:
            OwnershipLost: The commit can never be valid, because the partition has moved.
            StorageUnavailable: The cache did not answer; repeat the call.
        """
        while self._unwritten:
            self._unwritten[0]()
            del self._unwritten[0]
        if not self._swap_version() and (now := self._link.find_version()) != self.prepared.version:
            self._clear_away()
            raise OwnershipLost(f"this worker is at {self._expected}, the counter of {self._link.name} at {now}")

    def _swap_version(self) -> bool:
        try:
            return self._link.move(self._expected, self.prepared.version)
        except StorageUnavailable:
            self._is_unanswered = True
            raise

    def _clear_away(self) -> None:
        """Delete the written values. Not after a lost answer: then the commit may have become valid, and others build on it."""
        if not self._is_unanswered:
            with suppress(StorageUnavailable):
                for value in self.prepared.values:
                    for name, _ in cut(value):
                        self._link.delete(name)
