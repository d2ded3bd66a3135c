"""A unit as segments and pages keep it, and how its changes add up to it. Pure."""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from domain.clock import Instant
from storage.port import Snapshot, StashEntry, UnitChange, WaitKind, Waits

WaitsRow: TypeAlias = tuple[Instant, WaitKind, Instant, str, str, int, int]
"""The fields of `Waits`, in their order."""


class UnitRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What changed in a unit (in a segment), or all of it (in a page: then nothing is `removed`).

    `payment_data` None means that it did not change. With `begins` nothing counts that was there before: that was forgotten.
    `changed_at` is a time of the partition's caught-up clock.
    """

    unit: str
    state: bytes
    changed_at: int
    waits: WaitsRow | None
    stash: tuple[tuple[int, bytes], ...] = ()
    removed: tuple[int, ...] = ()
    payment_data: bytes | None = None
    begins: bool = False

    @property
    def size(self) -> int:
        """About the bytes that it takes when it is encoded."""
        size = 100 + len(self.unit) + len(self.state) + len(self.payment_data or b"") + 9 * len(self.removed)
        for _, body in self.stash:
            size += len(body) + 12
        return size

    def is_idle_since(self, until: int) -> bool:
        """Whether nothing waits in it and it did not change after `until`."""
        return self.waits is None and self.changed_at <= until


def record_of(change: UnitChange, changed_at: int, *, begins: bool) -> UnitRecord:
    return UnitRecord(
        change.unit,
        change.state,
        changed_at,
        None if change.waits is None else row_of(change.waits),
        tuple((entry.offset, entry.body) for entry in change.stash_added),
        change.stash_removed,
        change.payment_data,
        begins,
    )


def row_of(waits: Waits) -> WaitsRow:
    row: WaitsRow = msgspec.structs.astuple(waits)
    return row


def waits_of(row: WaitsRow) -> Waits:
    return Waits(row[0], WaitKind(row[1]), *row[2:])


def combined(base: UnitRecord | None, changes: Iterable[UnitRecord]) -> UnitRecord | None:
    """All of the unit after `changes`, oldest first; None if there is nothing of it.

    Changes that `base` has seen already may come again, if all that came after them do, too: the result is the same.
    """
    whole = base
    for change in changes:
        whole = _followed(None if change.begins else whole, change)
    return whole


def snapshot_of(record: UnitRecord) -> Snapshot:
    """Of a whole unit."""
    return Snapshot(record.unit, record.state, record.payment_data, tuple(StashEntry(*entry) for entry in record.stash))


def _followed(whole: UnitRecord | None, change: UnitRecord) -> UnitRecord:
    stash, payment_data = change.stash, change.payment_data
    if whole is not None:
        if whole.stash:
            kept = dict(whole.stash)
            for offset in change.removed:
                kept.pop(offset, None)
            stash = tuple((kept | dict(stash)).items())
        payment_data = whole.payment_data if payment_data is None else payment_data
    return UnitRecord(change.unit, change.state, change.changed_at, change.waits, tuple(sorted(stash)), (), payment_data)
