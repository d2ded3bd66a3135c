"""The expired units of a partition: idle units that a watermark has passed, except units in memory. Pure."""

from collections.abc import Container, Sequence

import msgspec

from storage.infinispan.layout.records import UnitRecord

NEVER = -1
"""A time before all times of a caught-up clock."""


class ExpiryWatermark(msgspec.Struct, frozen=True, array_like=True):
    """The watermark of a segment: idle units that last changed at `until` or before have expired.

    `spared` are exceptions, each with the time of its last change. All times are of the partition's caught-up clock.
    """

    until: int = NEVER
    spared: tuple[tuple[str, int], ...] = ()


class ExpiredUnits:
    """The watermark of a partition for its owner. The watermark moves only with commits, and never goes back.

    A unit that was loaded or changed is in memory until a call of `move` excludes it. Its next commit writes only what changed,
    so the stored rest must not expire.
    """

    def __init__(self, watermark: ExpiryWatermark) -> None:
        self.until = watermark.until
        self._next = watermark.until
        # Each with the time of its last change. The young units are in memory, and the watermark has not reached them.
        self._spared = dict(watermark.spared)
        self._young: dict[str, int] = {}

    def has(self, record: UnitRecord) -> bool:
        """Whether the unit has expired. The record may be the unit's last change or the whole unit."""
        return record.is_idle_since(self.until) and record.unit not in self._spared

    @property
    def spared(self) -> Sequence[str]:
        """The units in memory that are older than this watermark or the next one."""
        return tuple(self._spared)

    def note_in_memory(self, record: UnitRecord) -> None:
        """Note that the unit is in memory: it was loaded, or a commit with this change is valid."""
        self._spared.pop(record.unit, None)
        self._young.pop(record.unit, None)
        if record.waits is None:
            (self._spared if record.changed_at <= self._next else self._young)[record.unit] = record.changed_at

    def move(self, until: int, in_memory: Container[str]) -> None:
        """Move the watermark to `until` with the next commit. Units in memory that it passes are spared."""
        known = self._spared | self._young
        # A spared unit also stays if `until` is below the last watermark, because the retention was made longer.
        kept = {unit: at for unit, at in known.items() if unit in in_memory or until < at <= self._next}
        self._next = max(self._next, until)
        self._spared = {unit: at for unit, at in kept.items() if at <= self._next}
        self._young = {unit: at for unit, at in kept.items() if at > self._next}

    def next_watermark(self, changes: Sequence[UnitRecord]) -> ExpiryWatermark:
        """Return the watermark of the next commit, which makes these changes."""
        changed = {record.unit: record.changed_at for record in changes if record.is_idle_since(self._next)}
        changing = {record.unit for record in changes}
        unchanged = {unit: at for unit, at in self._spared.items() if unit not in changing}
        return ExpiryWatermark(self._next, tuple((unchanged | changed).items()))

    def take_up(self, watermark: ExpiryWatermark, changes: Sequence[UnitRecord]) -> None:
        """Take over the watermark of a commit that has become valid."""
        self.until = watermark.until
        for record in changes:
            self.note_in_memory(record)
