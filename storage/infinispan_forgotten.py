"""Which units are forgotten: to whom a change of theirs begins anew, though the cache still has what was before."""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from domain.clock import Instant
from storage.infinispan_contents import Contents
from storage.infinispan_horizon import Horizon
from storage.infinispan_leaf import NEVER
from storage.infinispan_records import UnitRecord
from storage.port import UnitChange

_MOST_REFUSED = 100_000


class Span(msgspec.Struct, frozen=True):
    """How long an idle unit is remembered after its last change, and how much longer who changed it may have it in use."""

    retention_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        assert self.retention_ms >= 0
        assert self.grace_ms >= 0


class Forgotten:
    """Decides by what loads were told, and where nothing was loaded by the horizon.

    A unit that was changed may be in use for a while, and must not lose what it goes on from: nothing goes that did change
    after `kept_until`, which is the grace before the horizon.
    """

    def __init__(self, contents: Contents, horizon: Horizon, span: Span) -> None:
        self._contents = contents
        self._horizon = horizon
        self._span = span
        self._refused: OrderedDict[str, None] = OrderedDict()

    @property
    def kept_until(self) -> Instant:
        """As far as is known without asking."""
        return max(NEVER, self._horizon.last - self._span.grace_ms)

    def note_loaded(self, unit: str, *, is_refused: bool) -> None:
        """A load found it; `is_refused` if it was told that there is none."""
        self._forget(unit)
        if not is_refused:
            self._contents.note_in_use(unit)
            return
        self._refused[unit] = None
        if len(self._refused) > _MOST_REFUSED:
            self._refused.popitem(last=False)

    def begun_anew(self, changes: Sequence[UnitChange], changed_at: int) -> set[str]:
        """Those of the changed units that go on from nothing. Asks the cache only where one may be old enough.

        Raises:
            Missing: A page is not there.
        """
        anew = {change.unit for change in changes if change.unit in self._refused}
        old = [change.unit for change in changes if self._may_be_forgotten(change, changed_at)]
        if old:
            self._horizon.read()
        return anew.union(unit for unit in old if self._is_forgotten(unit))

    def note_committed(self, changes: Sequence[UnitRecord]) -> None:
        for record in changes:
            self._forget(record.unit)

    def _forget(self, unit: str) -> None:
        self._refused.pop(unit, None)
        self._contents.in_use.pop(unit, None)

    def _may_be_forgotten(self, change: UnitChange, changed_at: int) -> bool:
        if change.unit in self._refused or self._contents.is_in_use(change.unit):
            return False
        latest = changed_at - self._span.retention_ms - self._span.grace_ms
        if (last := self._contents.window.find_last(change.unit)) is not None:
            return last.is_forgotten(latest)
        return any(self._contents.archive.may_be_as_old(page, latest) for page in self._contents.find_bases(change.unit))

    def _is_forgotten(self, unit: str) -> bool:
        record = self._contents.find(unit)
        return record is not None and record.is_forgotten(self.kept_until)
