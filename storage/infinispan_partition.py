"""One partition in Infinispan, as its owner sees it."""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from domain.errors import OwnershipLost
from storage.infinispan_attempt import Attempt
from storage.infinispan_commit import Preparation, records_of, take_up
from storage.infinispan_contents import Contents
from storage.infinispan_fold import FoldLimits
from storage.infinispan_forgotten import Forgotten, Span
from storage.infinispan_horizon import Horizon
from storage.infinispan_leaf import NEVER
from storage.infinispan_link import PartitionLink, page_name
from storage.infinispan_loss import Loss
from storage.infinispan_records import snapshot_of
from storage.infinispan_segment import MOST_COMMITS, stand_of_header
from storage.infinispan_values import Missing
from storage.port import Commit, Header, Pending, Snapshot, StorageUnavailable, Waits

_FORGOTTEN_PER_CALL = 1_000
_DELETED_PER_COMMIT = 16


class Shared(msgspec.Struct, frozen=True):
    """What all partitions of a storage share. `limits` are those of a commit of so many bytes."""

    horizon: Horizon
    loss: Loss
    span: Span
    limits: Callable[[int], FoldLimits]


class InfinispanPartitionStore:
    """A partition under the token of `contents`, which are those of its last commit that was answered."""

    def __init__(self, link: PartitionLink, contents: Contents, shared: Shared) -> None:
        self._link = link
        self._contents = contents
        self._shared = shared
        self._forgotten = Forgotten(contents, shared.horizon, shared.span)
        self._tried: Attempt | None = None
        self._counted = 0

    @property
    def header(self) -> Header:
        return self._contents.header

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        with self._losses_explained():
            found = [record for unit in units if (record := self._contents.find(unit)) is not None]
        until = self._shared.horizon.read() if any(record.waits is None for record in found) else NEVER
        self._check_owner()
        for record in found:
            self._forgotten.note_loaded(record.unit, is_refused=record.is_forgotten(until))
        return {record.unit: snapshot_of(record) for record in found if not record.is_forgotten(until)}

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
            self._tried = self._prepare(commit)
        self._tried.make()
        prepared, self._tried = self._tried.prepared, None
        take_up(self._contents, prepared)
        self._forgotten.note_committed(prepared.segment.changes)
        self._delete_garbage(_DELETED_PER_COMMIT + len(prepared.fold.pages) + len(self._contents.garbage) // 50)

    def expire(self, until: int, spared: Container[str]) -> int:  # noqa: ARG002
        self._check_owner()
        self._shared.horizon.move(until)
        return self._forget_old()

    def _forget_old(self) -> int:
        """How many units in old pages are given up now; the pages go with the next commits. Bounded work per call."""
        archive, until, count = self._contents.archive, self._forgotten.kept_until, 0
        self._counted = max(self._counted, archive.tail)
        while self._counted < archive.head and count < _FORGOTTEN_PER_CALL and archive.is_old(self._counted, until):
            count += archive.count_live(self._counted)
            self._counted += 1
        return count

    def _prepare(self, commit: Commit) -> Attempt:
        with self._losses_explained():
            records = records_of(commit, self._forgotten.begun_anew(commit.changes, commit.caught_up_ms))
            limits = self._shared.limits(sum(record.size for record in records))
            prepared = Preparation(self._contents, limits, self._forgotten.kept_until).prepare(commit, records)
        for number, page in prepared.fold.numbered_pages:
            self._link.remember_page(page_name(prepared.stand.token, number), page)
        return Attempt(self._link, stand_of_header(self.header), prepared)

    def _see_that_it_is_next(self, commit: Commit) -> None:
        """A number that was tried belongs to its attempt: what was written for it may count already, or soon."""
        header, tried = self.header, self._tried
        if commit.number != header.commit + 1 or commit.number > MOST_COMMITS:
            raise OwnershipLost(f"commit {commit.number} of {self._link.name} comes after {header.token}/{header.commit}")
        if tried is not None and tried.prepared.segment.attempt != commit.attempt:
            raise OwnershipLost(f"commit {header.token}/{commit.number} of {self._link.name} was tried with another attempt")

    def _check_owner(self) -> None:
        stand = stand_of_header(self.header)
        if (now := self._link.find_stand()) != stand:
            raise OwnershipLost(f"we are at {stand}, the counter of {self._link.name} is at {now}")

    @contextmanager
    def _losses_explained(self) -> Iterator[None]:
        try:
            yield
        except Missing as missing:
            root = self._contents.as_root()
            self._shared.loss.see_that_it_is_one(self._link, root.stand, missing)
            self._shared.loss.forget(self._link, root)
            raise OwnershipLost(f"{missing} is lost; the partition is to be taken over anew") from missing

    def _delete_garbage(self, most: int) -> None:
        """What is not deleted now is named by the next commit, and deleted after it."""
        garbage = self._contents.garbage
        for count, name in enumerate(garbage[:most]):
            try:
                self._link.delete(name)
            except StorageUnavailable:
                del garbage[:count]
                return
        del garbage[:most]
