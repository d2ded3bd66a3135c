"""What leaves a partition with its next positions: moved records, dead letters, and outcomes of orders. Pure."""

from collections import deque
from collections.abc import Sequence
from itertools import islice

import msgspec

from guardian.ports import Channel, OutputRecord

MOST_RECORDS, MOST_BYTES = 500, 4 << 20
"""So much leaves with one position at most, so that no transaction takes long."""


class Departure(msgspec.Struct, frozen=True):
    """`output` leaves. `offset` is that of the record that it comes from, and `lane` waits until it has left; None: none."""

    output: OutputRecord
    offset: int | None = None
    lane: bytes | int | None = None

    @property
    def is_outcome(self) -> bool:
        return self.output.channel is Channel.ORDER_OUTCOMES


class Departures:
    """In the order in which they leave. What was taken once is taken again, until it has left."""

    def __init__(self) -> None:
        self._waiting: deque[Departure] = deque()
        self._taken = 0
        self.bytes = 0
        """The size of all that waits."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, each: Departure) -> None:
        self._waiting.append(each)
        self.bytes += len(each.output.value)

    def take(self) -> list[Departure]:
        """Return what leaves now: what was taken before, and more up to the bounds."""
        self._taken = max(self._taken, self._find_cut())
        return list(islice(self._waiting, self._taken))

    def left(self, count: int) -> Sequence[Departure]:
        """Note that the first `count` have left; return them."""
        gone = [self._waiting.popleft() for _ in range(count)]
        self._taken -= count
        self.bytes -= sum(len(each.output.value) for each in gone)
        return gone

    def find_first_order(self) -> int | None:
        """Return the offset of the first order whose outcome waits and was not taken; None if there is none."""
        rest = islice(self._waiting, self._taken, None)
        return next((each.output.number - 1 for each in rest if each.is_outcome), None)

    def _find_cut(self) -> int:
        taken, is_whole = 0, False
        for number, each in enumerate(self._waiting):
            taken += len(each.output.value)
            if is_whole and (number >= MOST_RECORDS or taken > MOST_BYTES):
                return number
            # The outcome of an order leaves together with the record behind it, which the order was about.
            is_whole = not each.is_outcome
        return len(self._waiting)
