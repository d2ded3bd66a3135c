"""What a storage promises. Proved by `tests/storage/contract.py`, which every implementation passes on the real thing.

The rules are those of the exactly-once protocol (docs/decisions/0004-exactly-once.md): a partition is owned under a random
token, its commits are numbered, and every commit is a compare-and-set from one number to the next.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from domain.clock import Instant
from domain.errors import ResequencerError, TransientError, Withheld
from domain.record import Partition


class StorageUnavailable(TransientError):
    """No answer; a commit may or may not have been stored. The same call again is safe."""


class StorageRefused(ResequencerError):
    """The stored data cannot be used: damaged, or of a newer format. `what` names the file or key; the text ends with the remedy.

    Where damage shows only when it is reached, any call may raise it.
    """

    def __init__(self, what: str, problem: str) -> None:
        super().__init__(f"{what}: {problem}")
        self.what = what
        self.problem = problem


class StorageWithheld(StorageRefused, Withheld):
    """A login or a right is missing; once it is there, the same again is safe."""


class WaitKind(StrEnum):
    """Why a unit wants to be woken; one with a remainder (what its last turn left over, having let out its share) at once."""

    DEADLINE = "deadline"
    RETRY = "retry"
    DEPENDENCY = "dependency"
    REMAINDER = "remainder"


class Waits(msgspec.Struct, frozen=True, gc=False):
    """The index fields of a unit in which something waits, by which it is found without touching the idle ones.

    `wakes_at` is the instant of its deadline or next attempt (`kind`), `since` when its oldest stashed envelope was stashed,
    `waits_for` what is missing, for operators (`sequence:3`), or the server that is unavailable (kind `dependency`), `strategy`
    the one that made the state.
    """

    wakes_at: Instant
    kind: WaitKind
    since: Instant
    waits_for: str
    strategy: str
    stashed: int
    stashed_bytes: int


class StashEntry(msgspec.Struct, frozen=True, gc=False):
    """One stashed record as opaque bytes, known by its offset, which is unique in its partition."""

    offset: int
    body: bytes


class UnitChange(msgspec.Struct, frozen=True, gc=False):
    """What a cycle changed in one unit: its small state whole, of the rest only what came, went or changed.

    A commit holds one change of a unit at most. What is removed from the stash goes before what is added comes: an offset in
    both is replaced.
    `payment_data` is None where it did not change. `waits` is None where nothing waits: only then the unit may expire.
    """

    unit: str
    state: bytes
    waits: Waits | None = None
    stash_added: tuple[StashEntry, ...] = ()
    stash_removed: tuple[int, ...] = ()
    payment_data: bytes | None = None


class Snapshot(msgspec.Struct, frozen=True, gc=False):
    """A unit as it was last committed; the stash in ascending order of offsets."""

    unit: str
    state: bytes
    payment_data: bytes | None
    stash: tuple[StashEntry, ...]


class Pending(msgspec.Struct, frozen=True, gc=False):
    """Something that is to leave, as opaque bytes, under the number it will leave with."""

    number: int
    body: bytes


class Header(msgspec.Struct, frozen=True):
    """How far a partition got. `commit` counts its storage commits (0: nothing was ever committed under `token`).

    `next_offset` is the next offset to read, None before the first commit that knew one; `highest_number` the highest
    number given to anything that leaves, from 1; what was caused by a record below `heal_offset` may be a duplicate.
    `history` maps older tokens to the last commit made under each. `source` names the log that the offsets count in, so that a
    topic that was made anew is noticed; empty where nobody named it.

    `caught_up_ms` is the partition's caught-up clock: milliseconds during which its owner had read all that there was. It
    never goes back, and it stands still while records lie unread. Retention is counted on it.
    """

    token: str
    commit: int
    next_offset: int | None = None
    highest_number: int = 0
    heal_offset: int = 0
    history: tuple[tuple[str, int], ...] = ()
    source: str = ""
    caught_up_ms: int = 0

    @property
    def is_empty(self) -> bool:
        """Nothing was ever committed, or the storage has forgotten."""
        return self.next_offset is None


class Commit(msgspec.Struct, frozen=True):
    """All that a cycle changed in a partition.

    `number` is the header's `commit` + 1 and `attempt` a random id of this very commit: the same attempt again is already
    done. `added` joins what is pending, everything pending up to `published` leaves it. `source` and `caught_up_ms` become the
    header's; each unit of `changes` changed at `caught_up_ms`, which is at least the header's.
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


class PartitionStore(Protocol):
    """One partition's units, owned under one token. Used from one thread."""

    @property
    def header(self) -> Header:
        """As of `open` or of the last commit that was answered."""
        ...

    def load(self, units: Collection[str]) -> Mapping[str, Snapshot]:
        """The snapshots of those units that exist, in one read, atomically with a check of ownership.

        Raises:
            OwnershipLost: A newer owner opened this partition.
            StorageUnavailable: No answer.
        """
        ...

    def waiting(self) -> Sequence[tuple[str, Waits]]:
        """The units in which something waits. Costs by these, not by the idle ones.

        Raises: as `load`.
        """
        ...

    def pending(self) -> Sequence[Pending]:
        """What is to leave, by ascending number.

        Raises: as `load`.
        """
        ...

    def commit(self, commit: Commit) -> None:
        """Store all of it or nothing, as a compare-and-set on (token, number - 1).

        A doubled commit (same number, same attempt) has no effect and succeeds; a late one or another owner's has none and fails.

        Raises:
            OwnershipLost: A newer owner opened this partition, or the header moved; nothing was stored.
            StorageUnavailable: No answer; it may have been stored. The same commit again is safe.
        """
        ...

    def expire(self, until: int, spared: Container[str]) -> int:
        """Forget units in which nothing waits and that last changed at `until` or before, by the partition's caught-up clock.

        `spared` names the units that are in memory: they stay, for a later commit of theirs writes only what changed. Returns
        how many were forgotten: a bounded number per call, 0 when none is left. It is no commit. A storage may put off the
        forgetting to its next commit.

        Raises: as `load`.
        """
        ...


class Storage(Protocol):
    """Opens partitions. `is_durable` says whether what was committed outlives the process."""

    @property
    def is_durable(self) -> bool: ...

    def connect(self) -> None:
        """See that it answers and can be used: also a worker without a partition must not seem ready where it does not.

        Raises: as `open`.
        """
        ...

    def open(self, partition: Partition) -> PartitionStore:
        """Take ownership under a new random token; whatever is written later under an older one has no effect.

        Raises:
            StorageRefused: The data is damaged or of a newer format.
            StorageUnavailable: No answer.
        """
        ...

    def release(self, partition: Partition) -> None:
        """It is no longer ours: what this process keeps of it in memory goes. One that is not durable forgets the partition."""
        ...

    def close(self) -> None: ...
