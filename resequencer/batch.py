"""The turns of one cycle: which are out, what they led to, and what they may still let out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.clock import Instant
from resequencer.unit import Wake

if TYPE_CHECKING:
    from resequencer.messages import TakeTurn, UnitKey
    from resequencer.turn.turn import Turn

WITHOUT_END = 1 << 62
"""The share of a turn without a limit."""


class Batch:
    """The turns of a cycle. `out` counts those that have not ended; `turns` has the others, in order.

    The output of a cycle's turns is limited, in bytes, so that a cycle fits into memory, a commit and a publication. There are
    two shares: the first for remainders of earlier turns, the second and the rest of the first for other turns. So neither kind
    holds up the other. A turn may exceed its share by one envelope, and by its unit's payment data. `put_off` are the units whose
    wake got no share.
    """

    __slots__ = ("_of_others", "_of_remainders", "_share", "now", "out", "put_off", "turns")

    def __init__(self, now: Instant, share: int = WITHOUT_END) -> None:
        assert share > 0
        self.now = now
        self.out = 0
        self.turns: list[Turn] = []
        self.put_off: list[UnitKey] = []
        self._share = share
        self._of_remainders = 0
        self._of_others = 0

    def share_of(self, turn: TakeTurn, *, has_remainder: bool) -> int:
        """Return how many bytes a turn may let out that begins now; 0 if its envelopes have to wait."""
        share = self._share
        if Wake.REMAINDER in turn.wakes:
            return max(0, share - self._of_remainders)
        if has_remainder:
            return 0  # Its remainder comes first, in a turn of its own.
        return max(0, min(share, 2 * share - min(share, self._of_remainders) - self._of_others))

    def note(self, turn: Turn, *, is_remainder: bool) -> None:
        """Take over a turn that has ended. Its payment data count too, because they are always written whole."""
        self.turns.append(turn)
        if is_remainder:
            self._of_remainders += turn.written_bytes
        else:
            self._of_others += turn.written_bytes

    def count_off(self) -> bool:
        """Note that a turn has ended, as its last step. Return whether no other is out."""
        self.out -= 1
        return self.out == 0
