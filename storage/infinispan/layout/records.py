"""The form of a unit in segments and pages, and the combination of its changes. Pure."""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from resequencer.clock import Instant
from resequencer.storage_port import Snapshot, StashEntry, UnitChange, WaitKind, Waits

WaitsRow: TypeAlias = tuple[Instant, WaitKind, Instant, str, str, int, int]
"""The fields of `Waits`, in order."""


class UnitRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A change of a unit (in a segment), or the whole unit (in a page; then `removed` is empty).

    `payment_data` is None if it did not change. With `begins` earlier data of the unit does not count, because it has expired.
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
        """About its size when encoded, in bytes."""
        size = 100 + len(self.unit) + len(self.state) + len(self.payment_data or b"") + 9 * len(self.removed)
        for _, body in self.stash:
            size += len(body) + 12
        return size

    def is_idle_since(self, until: int) -> bool:
        """Whether nothing waits in the unit and it did not change after `until`."""
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
    """Return the whole unit after `changes`, oldest first; None if there are neither base nor changes.

    Changes that `base` includes already may be repeated, if all later changes are repeated too. The result is the same.
    """
    whole = base
    for change in changes:
        whole = _followed(None if change.begins else whole, change)
    return whole


def snapshot_of(record: UnitRecord) -> Snapshot:
    """Return the snapshot of a whole unit."""
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
