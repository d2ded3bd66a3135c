"""The turns of one cycle: what they led to, their output budgets, and the messages to and from the resequencers.

Messages are frozen, because Thespian delivers them without a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from resequencer.clock import Instant
from resequencer.event import Event
from resequencer.record import Partition
from resequencer.storage_port import Snapshot
from resequencer.unit import Ordered, Wake

if TYPE_CHECKING:
    from resequencer.call import Answer
    from resequencer.turn.turn import Turn

WITHOUT_END = 1 << 62
"""The output budget of a turn without a limit."""


class UnitKey(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """A unit of work in its partition. One resequencer belongs to it. Caches its hash, because a turn looks it up often."""

    partition: Partition
    unit: str


class Batch:
    """The turns of a cycle. `out` counts those that have not ended; `turns` has the others, in order.

    The output of a cycle's turns is limited, in bytes, so that a cycle fits into memory, a commit and a publication. There are
    two budgets: the first for remainders of earlier turns, the second and what remains of the first for other turns. So neither
    kind blocks the other: `for_remainders` and `for_others` are the budgets of a turn of each kind that begins now. A turn may
    exceed its budget by one envelope, and by its unit's data. `postponed` are the units whose wake got no budget.
    """

    __slots__ = ("_budget", "_of_others", "_of_remainders", "for_others", "now", "out", "postponed", "turns")

    def __init__(self, now: Instant, budget: int = WITHOUT_END) -> None:
        assert budget > 0
        self.now = now
        self.out = 0
        self.turns: list[Turn] = []
        self.postponed: list[UnitKey] = []
        self._budget = budget
        self._of_remainders = 0
        self._of_others = 0
        self.for_others = budget

    @property
    def for_remainders(self) -> int:
        return max(0, self._budget - self._of_remainders)

    def note(self, turn: Turn, *, is_remainder: bool) -> None:
        """Take over a turn that has ended. Its unit's data count too, because they are always written whole."""
        self.turns.append(turn)
        if is_remainder:
            self._of_remainders += turn.written_bytes
        else:
            self._of_others += turn.written_bytes
        budget = self._budget
        rest = budget + self.for_remainders - self._of_others if self._of_remainders else 2 * budget - self._of_others
        self.for_others = budget if rest > budget else max(0, rest)

    def count_off(self) -> bool:
        """Note that a turn has ended, as its last step. Return whether no other is out."""
        self.out -= 1
        return self.out == 0


class TakeTurn(msgspec.Struct, frozen=True, gc=False):
    """Take a turn with this answer, these envelopes, in order of arrival, then these orders, and then these wakes, and count it
    off `batch`.

    An actor that is new restores its unit from `snapshot`; None for a new unit. With `is_careful` the turn raised before: it is
    repeated, and the envelopes on which it fails become dead letters.
    """

    key: UnitKey
    envelopes: tuple[Event, ...]
    wakes: tuple[Wake, ...]
    batch: Batch
    snapshot: Snapshot | None = None
    is_careful: bool = False
    orders: tuple[Ordered, ...] = ()
    answer: Answer | None = None


class TurnsTaken(msgspec.Struct, frozen=True):
    """No turn of the batch is out any more."""

    batch: Batch


class Refused(msgspec.Struct, frozen=True):
    """The stored snapshot cannot be used; the worker must end and log the error."""

    key: UnitKey
    error: Exception
