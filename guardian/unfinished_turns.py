"""The queue of units whose last turn left a remainder, in the order of their next turns. Pure bookkeeping."""

from resequencer.batch import UnitKey
from resequencer.record import Partition
from resequencer.storage_port import WaitKind, Waits


class UnfinishedTurns:
    """A queue: new units and units that let something out go to its end. `stashed_bytes` is the sum over all units."""

    def __init__(self) -> None:
        self._line: dict[UnitKey, int] = {}
        self.stashed_bytes = 0

    def __len__(self) -> int:
        return len(self._line)

    def note(self, key: UnitKey, waits: Waits | None, *, has_let_out: bool) -> None:
        """Take over how a unit waits now. A unit that let nothing out keeps its place, even if envelopes arrived for it."""
        is_left_over = waits is not None and waits.kind is WaitKind.REMAINDER
        if has_let_out or not is_left_over:
            self._remove(key)
        if waits is not None and is_left_over:
            self.stashed_bytes += waits.stashed_bytes - self._line.get(key, 0)
            self._line[key] = waits.stashed_bytes

    def first(self, limit: int, most_bytes: int) -> list[UnitKey]:
        """Return the units with the next turns: at least one, at most `limit`, and none more once they hold `most_bytes`.

        `most_bytes` bounds what is loaded at once.
        """
        found, size = list[UnitKey](), 0
        for key, stashed_bytes in self._line.items():
            if found and (len(found) >= limit or size >= most_bytes):
                break
            found.append(key)
            size += stashed_bytes
        return found

    def drop(self, partition: Partition) -> None:
        for key in [key for key in self._line if key.partition == partition]:
            self._remove(key)

    def _remove(self, key: UnitKey) -> None:
        self.stashed_bytes -= self._line.pop(key, 0)
