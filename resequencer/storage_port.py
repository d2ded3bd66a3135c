"""The interface of storages. Every implementation passes `tests/storage/contract.py` on the real server.

The rules are those of the exactly-once protocol (docs/decisions/0004-exactly-once.md). A partition is owned under a random
token, its commits are numbered, and every commit is a compare-and-set from one number to the next.
"""

import re
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

from resequencer.clock import Instant
from resequencer.errors import ResequencerError, TransientError, Withheld
from resequencer.record import Partition

Answer = TypeVar("Answer")


class StorageUnavailable(TransientError):
    """The storage did not answer; a commit may or may not be stored. The same call may be repeated."""


class StorageRefused(ResequencerError):
    """The stored data cannot be used: it is damaged, or of a newer format.

    `what` is the file or key. The text ends with the remedy. Any call may raise it, because damage may show only when it is read.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem


class StorageWithheld(StorageRefused, Withheld):
    """A login or a right is missing. Once an operator has granted it, the same call may be repeated."""


class WaitKind(StrEnum):
    """Why a unit must be woken. A unit with a remainder (the rest of a turn whose output budget was used up) is due at once.

    An operator holds a unit that is `HELD`: nothing of it is handled until the hold ends. With `CALL` a unit waits for the answer
    of its handler. With `ORDERED` an operator's order waits until records are read; the deadline is suspended.
    """

    DEADLINE = "deadline"
    RETRY = "retry"
    DEPENDENCY = "dependency"
    REMAINDER = "remainder"
    HELD = "held"
    CALL = "call"
    ORDERED = "ordered"


_AFTER_ERROR = re.compile(r"attempt \d+ of \d+, after \w*")
"""The text of the error follows (`resequencer/turn/waits.py`). It is a handler's, and may quote the event."""


class Waits(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The index fields of a unit in which something waits. They find the unit without a look at the idle units.

    `wakes_at` is the instant of its deadline, next attempt or end of its hold (`kind`), the instant until which its order may
    wait, or since when its handler is called. `since` is when its oldest stashed envelope was stashed; of a held unit without
    one, when its hold began. `waits_for` is what is missing, for operators (`sequence:3`), or the unavailable server (kind
    `dependency`). `strategy` is the strategy that wrote the state.
    """

    wakes_at: Instant
    kind: WaitKind
    since: Instant
    waits_for: str
    strategy: str
    stashed: int
    stashed_bytes: int

    @property
    def shown_waits_for(self) -> str:
        """What it waits for, for people who may not see the data of units: of the last attempt's error the type alone."""
        found = _AFTER_ERROR.match(self.waits_for) if self.kind is WaitKind.RETRY else None
        return found.group() if found else self.waits_for


class StashEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One stashed record as opaque bytes, identified by its offset, which is unique in its partition."""

    offset: int
    body: bytes


class UnitChange(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The changes of a cycle in one unit: the whole small state, and only the changed parts of the rest.

    A commit has at most one change of a unit. Stash entries are removed before others are added: an offset in both is replaced.
    `data` is None if it did not change. `waits` is None if nothing waits; only then the unit may expire.
    """

    unit: str
    state: bytes
    waits: Waits | None = None
    stash_added: tuple[StashEntry, ...] = ()
    stash_removed: tuple[int, ...] = ()
    data: bytes | None = None


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A unit as it was last committed. The stash is in ascending order of offsets."""

    unit: str
    state: bytes
    data: bytes | None
    stash: tuple[StashEntry, ...]


class Pending(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An output record that is not published yet, as opaque bytes, with its number."""

    number: int
    body: bytes


class Header(msgspec.Struct, frozen=True):
    """The progress of a partition. `commit` counts the commits under `token` (0: none).

    `next_offset` is the next offset to read, None before the first commit. `highest_number` is the highest number of an output
    record so far, from 1. Output of records below `heal_offset` may be a duplicate. `history` maps older tokens to the last
    commit under each. `source` identifies the log of the offsets, so that a recreated topic is detected; empty if unknown.

    `caught_up_ms` is the partition's caught-up clock: the milliseconds during which its owner had read the whole log. It never
    goes back, and stands still while there are unread records. Retention is measured on it.

    `orders` is what the owner knows of the partition's orders, opaque to storages; empty before the first order. `source_state`
    is what a source has to remember beside `next_offset`, opaque to storages: what of a queue was taken, what of a file was
    read.
    """

    token: str
    commit: int
    next_offset: int | None = None
    highest_number: int = 0
    heal_offset: int = 0
    history: tuple[tuple[str, int], ...] = ()
    source: str = ""
    caught_up_ms: int = 0
    orders: str = ""
    source_state: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever committed, or the storage has lost everything."""
        return self.next_offset is None


class Commit(msgspec.Struct, frozen=True, array_like=True):
    """All changes of a cycle in a partition.

    `number` is the header's `commit` + 1. `attempt` is a random id of this commit; the same attempt again has no effect.
    `added` is added to the pending output, and pending output up to the number `published` is removed. `source`, `caught_up_ms`,
    `orders` and `source_state` become the header's. Each unit of `changes` changed at `caught_up_ms`, which is at least the
    header's.

    The log of storage `embedded` has these fields, and those of what is in them, in this order: a new one comes last.
    """

    number: int
    attempt: str
    next_offset: int
    highest_number: int
    heal_offset: int = 0
    changes: tuple[UnitChange, ...] = ()
    added: tuple[Pending, ...] = ()
    published: int = 0
    source: str = ""
    caught_up_ms: int = 0
    orders: str = ""
    source_state: str = ""


class PartitionStore(Protocol):
    """One partition's units, owned under one token. Used from one thread at a time."""

    @property
    def header(self) -> Header:
        """The header after `open` or after the last commit that succeeded."""
        ...

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        """Return the snapshots of those units that exist, in one read, atomically with a check of ownership.

        Raises:
            OwnershipLost: A newer owner opened this partition.
            StorageUnavailable: The storage did not answer.
        """
        ...

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        """Return the units in which something waits. The cost depends on their number, not on the number of idle units.

        Raises: as `load`.
        """
        ...

    def has_units(self) -> bool:
        """Whether any unit is stored, idle or not. Expired units may count until they are removed.

        Raises: as `load`.
        """
        ...

    def pending(self) -> Sequence[Pending]:
        """Return the output that is not published yet, by ascending number.

        Raises: as `load`.
        """
        ...

    def commit(self, commit: Commit) -> None:
        """Store all of the commit or nothing, as a compare-and-set on (token, number - 1).

        A repeated commit (same number, same attempt) has no effect and succeeds. A late commit, or one of another owner, has no
        effect and fails.

        Raises:
            OwnershipLost: A newer owner opened this partition, or the header moved; nothing was stored.
            StorageUnavailable: The storage did not answer; the commit may be stored. The same commit may be repeated.
        """
        ...

    def expire(self, until: int, spared: Container[str]) -> int:
        """Remove units in which nothing waits and that last changed at `until` or before, by the partition's caught-up clock.

        `spared` has the units in memory. They stay, because their next commit writes only what changed. Returns the number of
        removed units: bounded per call, 0 when none is left. This is not a commit. A storage may put the removal off until its
        next commit.

        Raises: as `load`.
        """
        ...


class Storage(Protocol):
    """Opens partitions. `is_durable` is set if commits outlive the process."""

    @property
    def is_durable(self) -> bool: ...

    def connect(self) -> None:
        """Check that the storage answers and can be used, so that a worker without partitions is not ready wrongly.

        Raises: as `open`.
        """
        ...

    def open(self, partition: Partition) -> PartitionStore:
        """Take ownership under a new random token. Later writes under an older token have no effect.

        Raises:
            StorageRefused: The data is damaged or of a newer format.
            StorageUnavailable: The storage did not answer.
        """
        ...

    def side_by_side(self, calls: Sequence[Callable[[], Answer]]) -> Sequence[Callable[[], Answer]]:
        """Make these calls of stores, each of another partition, at the same time, if that is quicker than one after the other.

        Return calls in their place. Each gives the outcome of the one that was made, and makes it if it was not; if it is
        repeated, it makes it again.
        """
        ...

    def give_up(self, partition: Partition) -> None:
        """Drop a partition that is no longer assigned from this process's memory. A storage without durability loses it."""
        ...

    def close(self) -> None: ...
