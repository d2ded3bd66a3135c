"""Units whose last turn left something over, in the order in which they get their next one. Pure bookkeeping."""

from domain.record import Partition
from resequencer.messages import UnitKey
from storage.port import WaitKind, Waits


class Remainders:
    """A line: who is new stands at its end, and so does who let something out. `stashed_bytes` is what all of them hold."""

    def __init__(self) -> None:
        self._line: dict[UnitKey, int] = {}
        self.stashed_bytes = 0

    def __len__(self) -> int:
        return len(self._line)

    def __contains__(self, key: UnitKey) -> bool:
        return key in self._line

    def note(self, key: UnitKey, waits: Waits | None, *, has_let_out: bool) -> None:
        """How a unit waits now. One that had no turn of its own keeps its place, whatever arrived for it."""
        is_left_over = waits is not None and waits.kind is WaitKind.REMAINDER
        if has_let_out or not is_left_over:
            self._remove(key)
        if waits is not None and is_left_over:
            self.stashed_bytes += waits.stashed_bytes - self._line.get(key, 0)
            self._line[key] = waits.stashed_bytes

    def first(self, limit: int, most_bytes: int) -> list[UnitKey]:
        """Those whose turn it is: one at least, about `limit`, and no more once they hold so many bytes, which may be loaded."""
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
