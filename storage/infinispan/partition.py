"""One partition in Infinispan, for its owner."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from resequencer.errors import OwnershipLost
from resequencer.storage_port import Commit, Header, Pending, Snapshot, StorageUnavailable, Waits
from storage.infinispan.commit import Preparation, records_of, take_up
from storage.infinispan.commit_attempt import CommitAttempt
from storage.infinispan.data_loss import DataLoss
from storage.infinispan.keys import PartitionKeys, page_name
from storage.infinispan.layout.compaction import CompactionLimits
from storage.infinispan.layout.records import snapshot_of
from storage.infinispan.layout.segment import MOST_COMMITS, version_of_header
from storage.infinispan.layout.value_framing import Missing
from storage.infinispan.partition_state import PartitionState

_DELETED_PER_COMMIT = 4
_NOTHING: tuple[int, Callable[[], None]] = 0, lambda: None


class InfinispanPartitionStore:
    """A partition under the token of `contents`, its state after the last commit that succeeded.

    `limits` returns the limits of the compaction for a commit of so many bytes.
    """

    def __init__(
        self, link: PartitionKeys, contents: PartitionState, loss: DataLoss, limits: Callable[[int], CompactionLimits]
    ) -> None:
        self._link = link
        self._contents = contents
        self._loss = loss
        self._limits = limits
        self._tried: CommitAttempt | None = None
        self._clearing = _NOTHING

    @property
    def header(self) -> Header:
        return self._contents.header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        with self._losses_explained():
            found = [record for unit in units if (record := self._contents.find(unit)) is not None]
        self._check_owner()
        forgotten = self._contents.forgotten
        remembered = [record for record in found if not forgotten.has(record)]
        for record in remembered:
            forgotten.note_in_memory(record)
        return {record.unit: snapshot_of(record) for record in remembered}

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        self._check_owner()
        return list(self._contents.waits.items())

    def pending(self) -> Sequence[Pending]:
        self._check_owner()
        return [Pending(*entry) for entry in sorted(self._contents.pending.items())]

    def commit(self, commit: Commit) -> None:
        if (commit.number, commit.attempt) == (self.header.commit, self._contents.attempt):
            self._check_owner()
            return
        self._see_that_it_is_next(commit)
        if self._tried is None:
            self._end_of_clearing()
            self._tried = self._prepare(commit)
        self._tried.make()
        prepared, self._tried = self._tried.prepared, None
        take_up(self._contents, prepared)
        self._begin_to_clear_away(_DELETED_PER_COMMIT + len(prepared.compaction.pages) + len(self._contents.garbage) // 50)

    def expire(self, until: int, spared: Container[str]) -> int:
        """Move the watermark of the next commit. Removes nothing now: later commits delete the expired units. Returns 0."""
        self._check_owner()
        self._contents.forgotten.move(until, spared)
        return 0

    def _prepare(self, commit: Commit) -> CommitAttempt:
        with self._losses_explained():
            records = records_of(self._contents, commit)
            limits = self._limits(sum(record.size for record in records))
            prepared = Preparation(self._contents, limits).prepare(commit, records)
        for number, page in prepared.compaction.numbered_pages:
            self._link.remember_page(page_name(prepared.version.token, number), page)
        return CommitAttempt(self._link, version_of_header(self.header), prepared)

    def _see_that_it_is_next(self, commit: Commit) -> None:
        """Check that the commit follows. A number that was tried belongs to its attempt, which may be or become valid."""
        header, tried = self.header, self._tried
        if commit.number != header.commit + 1 or commit.number > MOST_COMMITS:
            raise OwnershipLost(f"commit {commit.number} of {self._link.name} does not follow {header.token}/{header.commit}")
        if tried is not None and tried.prepared.segment.attempt != commit.attempt:
            raise OwnershipLost(f"commit {header.token}/{commit.number} of {self._link.name} was tried with another attempt")

    def _check_owner(self) -> None:
        version = version_of_header(self.header)
        if (now := self._link.find_version()) != version:
            raise OwnershipLost(f"this worker is at {version}, the counter of {self._link.name} at {now}")

    @contextmanager
    def _losses_explained(self) -> Iterator[None]:
        try:
            yield
        except Missing as missing:
            root = self._contents.as_root()
            self._loss.see_that_it_is_one(self._link, root.version, missing)
            self._loss.forget(self._link, root)
            raise OwnershipLost(f"{missing} is lost; the partition must be taken over again") from missing

    def _begin_to_clear_away(self, limit: int) -> None:
        """Begin to delete garbage, up to so many values. The next commit records the rest."""
        names = self._contents.garbage[:limit]
        self._clearing = len(names), self._link.begin_to_delete(names)

    def _end_of_clearing(self) -> None:
        """Wait until the garbage is gone. What could not be deleted is so after the next commit."""
        (count, wait), self._clearing = self._clearing, _NOTHING
        with suppress(StorageUnavailable):
            wait()
            del self._contents.garbage[:count]
