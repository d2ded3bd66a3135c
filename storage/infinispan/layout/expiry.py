"""Which idle units of a partition are forgotten: those that a watermark has passed, but for those that are in memory. Pure."""

from collections.abc import Container, Sequence

import msgspec

from storage.infinispan.layout.records import UnitRecord

NEVER = -1
"""Before every time of a caught-up clock."""


class ExpiryWatermark(msgspec.Struct, frozen=True, array_like=True):
    """What a segment says: idle units that last changed at `until` or before are forgotten.

    `spared` are units that did so and are remembered, with the time of their last change. All times are of the partition's
    caught-up clock.
    """

    until: int = NEVER
    spared: tuple[tuple[str, int], ...] = ()


class ExpiredUnits:
    """The owner's view of its partition's watermark. The watermark moves with commits only, and never goes back.

    What a load found and what a commit changed is in memory, until `move` is told that it is not: its next change blocks out
    what did not change. So it keeps what it goes on from.
    """

    def __init__(self, watermark: ExpiryWatermark) -> None:
        self.until = watermark.until
        self._next = watermark.until
        # By the last change of each; the young ones are in memory, and the watermark has not come to them.
        self._spared = dict(watermark.spared)
        self._young: dict[str, int] = {}

    def has(self, record: UnitRecord) -> bool:
        """Whether the unit is forgotten. The last change of a unit will do for the whole of it."""
        return record.is_idle_since(self.until) and record.unit not in self._spared

    @property
    def spared(self) -> Sequence[str]:
        """Units that are, or soon will be, older than the watermark."""
        return tuple(self._spared)

    def note_in_memory(self, record: UnitRecord) -> None:
        """A load found the unit, or a commit with this change counts."""
        self._spared.pop(record.unit, None)
        self._young.pop(record.unit, None)
        if record.waits is None:
            (self._spared if record.changed_at <= self._next else self._young)[record.unit] = record.changed_at

    def move(self, until: int, in_memory: Container[str]) -> None:
        """With the next commit the watermark comes to `until`. Of the units that it passes, those in memory are spared."""
        known = self._spared | self._young
        # A unit that is spared stays, too, if a watermark that did not come as far is asked for: the retention was made longer.
        kept = {unit: at for unit, at in known.items() if unit in in_memory or until < at <= self._next}
        self._next = max(self._next, until)
        self._spared = {unit: at for unit, at in kept.items() if at <= self._next}
        self._young = {unit: at for unit, at in kept.items() if at > self._next}

    def next_watermark(self, changes: Sequence[UnitRecord]) -> ExpiryWatermark:
        """What the next commit says, which makes these changes."""
        changed = {record.unit: record.changed_at for record in changes if record.is_idle_since(self._next)}
        changing = {record.unit for record in changes}
        unchanged = {unit: at for unit, at in self._spared.items() if unit not in changing}
        return ExpiryWatermark(self._next, tuple((unchanged | changed).items()))

    def take_up(self, watermark: ExpiryWatermark, changes: Sequence[UnitRecord]) -> None:
        """The commit that said so counts."""
        self.until = watermark.until
        for record in changes:
            self.note_in_memory(record)
