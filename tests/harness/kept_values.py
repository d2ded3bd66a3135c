"""The values of one partition of a store, in memory."""

from collections.abc import Collection, Mapping, Sequence

from notification_service.aggregation.core import Slot, Stored, Turn
from resequencer.clock import Instant


class KeptValues:
    """Values that a test commits turn by turn. A turn that is not committed has changed nothing."""

    def __init__(self) -> None:
        self.stored: dict[Slot, Stored] = {}

    def find(self, slot: Slot) -> Stored | None:
        return self.stored.get(slot)

    def find_all(self, slots: Collection[Slot]) -> Mapping[Slot, Stored]:
        return {slot: self.stored[slot] for slot in slots if slot in self.stored}

    def due(self, until: Instant, most: int) -> Sequence[str]:
        heads = ((stored.due, slot.key) for slot, stored in self.stored.items() if not slot.member)
        return [key for due, key in sorted((due, key) for due, key in heads if due is not None and due <= until)][:most]

    def keys(self, after: str, most: int) -> Sequence[str]:
        return sorted(slot.key for slot in self.stored if not slot.member and slot.key > after)[:most]

    def members(self, key: str, most: int) -> Sequence[str]:
        return sorted(slot.member for slot in self.stored if slot.key == key and slot.member)[:most]

    def commit(self, turn: Turn) -> None:
        for slot, stored in turn.changes.items():
            if stored is None:
                self.stored.pop(slot, None)
            else:
                self.stored[slot] = stored
