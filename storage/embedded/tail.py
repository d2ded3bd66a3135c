"""The tail of a partition: what its commit log has and the database lacks, with the changes of each unit as one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from resequencer.storage_port import Commit, Header, Snapshot, StashEntry, StorageRefused, UnitChange, Waits
from storage.embedded.commit_log import Contents
from storage.embedded.errors import RESTORE
from storage.fencing import LastCommit, advanced


class ReadCommit(NamedTuple):
    """The new stash entries of each unit, and the new pending output, of a commit."""

    stashed: dict[str, dict[int, bytes]]
    pending: dict[int, bytes]


def read_commit(commit: Commit) -> ReadCommit:
    """Read all of a commit that may be invalid, before any of it is stored."""
    stashed = {each.unit: {entry.offset: entry.body for entry in each.stash_added} for each in commit.changes if each.stash_added}
    return ReadCommit(stashed, {each.number: each.body for each in commit.added})


class ChangedUnit:
    """All changes of a unit in the tail. `data` is None if none of them changed it.

    Its stash is that of the database without `removed`, and then `added`.
    """

    __slots__ = ("added", "changed_at", "data", "removed", "state", "waits")

    def __init__(self) -> None:
        self.state = b""
        self.waits: Waits | None = None
        self.changed_at = 0
        self.data: bytes | None = None
        self.added: dict[int, bytes] = {}
        self.removed: dict[int, None] = {}

    def note(self, change: UnitChange, stashed: Mapping[int, bytes] | None, at: int) -> None:
        self.state, self.waits, self.changed_at = change.state, change.waits, at
        if change.data is not None:
            self.data = change.data
        for offset in change.stash_removed:
            self.added.pop(offset, None)
            self.removed[offset] = None
        if stashed:
            self.added.update(stashed)

    def over(self, unit: str, stored: Snapshot | None) -> Snapshot:
        """Return the unit, of which the database has `stored`."""
        stash = {each.offset: each.body for each in stored.stash} if stored is not None else {}
        for offset in self.removed:
            stash.pop(offset, None)
        stash |= self.added
        data = stored.data if self.data is None and stored is not None else self.data
        return Snapshot(unit, self.state, data, tuple([StashEntry(*each) for each in sorted(stash.items())]))


class Tail:
    """The tail behind `header`, which the database has. `commits` are the numbers and changed units of its commits."""

    def __init__(self, header: Header, attempt: str | None = None) -> None:
        self.header = header
        self.attempt = attempt
        self.units: dict[str, ChangedUnit] = {}
        self.pending: dict[int, bytes] = {}
        self.published = 0
        self.commits: list[tuple[int, tuple[str, ...]]] = []

    @property
    def last_commit(self) -> LastCommit:
        return LastCommit(self.header.token, self.header.commit, self.attempt)

    def add(self, commit: Commit, read: ReadCommit | None = None) -> None:
        """Take over the next commit. `read` is what it was read as before, if it was."""
        stashed, pending = read or read_commit(commit)
        units, at = self.units, commit.caught_up_ms
        for change in commit.changes:
            known = units.get(change.unit)
            if known is None:
                known = units[change.unit] = ChangedUnit()
            known.note(change, stashed.get(change.unit), at)
        self.pending |= pending
        self.published = max(self.published, commit.published)
        for number in [each for each in self.pending if each <= commit.published]:
            del self.pending[number]
        self.commits.append((commit.number, tuple([each.unit for each in commit.changes])))
        self.header, self.attempt = advanced(self.header, commit), commit.attempt


def find_tail(log: Path, contents: Contents, stored: Header) -> Tail:
    """Return the tail of a log whose database has `stored`. Commits that the database has are skipped.

    Raises:
        StorageRefused: The log does not follow: it is of another database, or one of both is a copy of an earlier time.
    """
    tail = Tail(stored)
    for token, commit in contents.entries:
        if commit is None:
            continue
        if token == stored.token and commit.number == tail.header.commit + 1:
            tail.add(commit)
        elif not _has(tail.header, token, commit.number):
            problem = f"it has commit {token}/{commit.number}, and its database ends at {stored.token}/{stored.commit}"
            raise StorageRefused(str(log), f"{problem}: they do not belong together; {RESTORE}")
    return tail


def refuse_damage(log: Path, contents: Contents, header: Header) -> None:
    """Refuse a log that has a commit behind a damaged place, unless `header`, of the database and the tail, includes it.

    Raises:
        StorageRefused: A record is damaged that was answered, because the next one was made.
    """
    for token, commit in contents.find_behind((header.token, *dict(header.history))):
        if commit is not None and not _has(header, token, commit.number):
            raise StorageRefused(str(log), f"it is damaged at byte {contents.end}; {RESTORE}")


def _has(header: Header, token: str, number: int) -> bool:
    return number <= (header.commit if token == header.token else dict(header.history).get(token, 0))
