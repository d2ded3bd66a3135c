"""The interface of views: what a storage holds, for programs that own nothing (the console, `resequencer units`).

Every implementation passes `tests/storage/view_contract.py` on the real server. Storage `none` has no view, because its data are
in its worker's memory.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec

from resequencer.record import Partition
from resequencer.storage_port import Header, Snapshot, Waits

NOTHING_COMMITTED = ""


def marker_of(header: Header | None) -> str:
    """Return the marker of the last commit, under this token or an older one. None: the partition was never opened.

    Only one attempt is ever stored under a token and a number, so a marker names one content. Tokens are drawn at random at each
    takeover, so a marker also names the storage: no other one has this commit, unless it is a copy that contains it. A new owner
    changes no unit, so its takeover leaves the marker as it was. The history keeps the last token with commits however many
    takeovers followed.
    """
    if header is None:
        return NOTHING_COMMITTED
    for token, commit in ((header.token, header.commit), *reversed(header.history)):
        if commit > 0:
            return f"{token}/{commit}"
    return NOTHING_COMMITTED


def count_commits_since(header: Header, marker: str | None) -> int | None:
    """Return how many commits followed the marked one.

    Returns None if the storage does not know the marked commit: it is of another storage or of long ago, or the storage has lost
    it, even if it has later ones under a newer token.
    """
    marked, _, number = (marker or "").partition("/")
    if not (number.isascii() and number.isdecimal()) or int(number) == 0:
        return None
    since = 0
    for token, commit in ((header.token, header.commit), *reversed(header.history)):
        if token == marked:
            return since + commit - int(number) if int(number) <= commit else None
        since += commit
    return None


WaitingPortion = Sequence[tuple[str, Waits | None]]
"""Units with their waits, None if the unit does not wait. A portion has some thousands of units at most."""

_ALWAYS_READ = 2_000


class UnitView(msgspec.Struct, frozen=True):
    """A unit as one commit left it: state, data and stash, and the waits of the same commit (None: it is idle)."""

    snapshot: Snapshot
    waits: Waits | None


class WaitingChanges(NamedTuple):
    """The waiting units of a partition, whole or as changes since a marker.

    If `is_whole`, the portions list every waiting unit, and a unit that they do not list does not wait. Otherwise nothing changed
    in a unit that they do not list. A unit may be listed several times, in one portion or in several: its last entry counts.

    `marker` names the commit as of which the portions are complete. It is opaque, may be stored, and is valid in other processes.
    Commits that follow while the portions are read may show in them or not. The next call with `marker` lists them all.

    `portions` can be read once, and reads the storage while it is iterated, so it raises what the calls of the view raise. Then
    the portions so far are void: begin again with the marker of before. It may be abandoned.
    """

    marker: str
    is_whole: bool
    portions: Iterator[WaitingPortion]


def whole_of_nothing() -> WaitingChanges:
    """Return the changes of a partition that is gone since the marker."""
    return WaitingChanges(NOTHING_COMMITTED, True, iter(()))


def is_worth_it(changed: int, waiting: int) -> bool:
    """Whether it is cheaper to read so many changed units one by one than all units that wait in their order."""
    return changed <= _ALWAYS_READ + waiting // 4


class StorageView(Protocol):
    """Reads what the storage holds. It needs no ownership, changes nothing, creates nothing, and never makes an owner wait.

    Nothing is connected before the first call. A storage that does not exist yet has no partitions; once it exists, the next call
    finds them. Used from one thread.

    Each method raises:
        StorageUnavailable: The storage did not answer, or the partition changed too fast to be read. The call may be repeated.
        StorageRefused: The data are damaged, or of a format that this version does not read.
    """

    def find_header(self, partition: Partition) -> Header | None:
        """Return the header after the last commit or takeover, None if the partition was never opened."""
        ...

    def find_unit(self, partition: Partition, unit: str) -> UnitView | None:
        """Return a unit as one commit left it, None if the storage does not have it: never seen, or expired.

        It may be a few commits old when it returns. The first look at a partition may read an index of all its units.
        """
        ...

    def find_waiting(self, partition: Partition, marker: str | None) -> WaitingChanges | None:
        """Return what changed among the waiting units since `marker`. With None, or an unknown marker, it is the whole.

        Returns None if nothing was committed since the marker: that is one cheap read. A takeover is no commit. With a marker of
        None, it returns None if the partition was never opened. A partition that is gone since the marker has a whole of nothing.

        Whether changes or the whole are returned is the storage's choice.
        """
        ...

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        ...
