"""All that was let out of one unit."""

from collections.abc import Sequence

from domain.clock import Instant
from pipeline.audit.observed import ObservedDeadLetter, ObservedNotification


class UnitOutput:
    """`notifications` are in the order in which they left, `letters` by the offset of their record.

    `incomplete` has the offsets of what is marked so, `released` the ids of what was made so at an instant:
    one release makes all of its own at one.
    """

    def __init__(self) -> None:
        self.notifications: list[ObservedNotification] = []
        self.letters: dict[int, list[ObservedDeadLetter]] = {}
        self.versions: set[str | None] = set()
        self.has_possible_duplicates = False
        self.incomplete: set[int] = set()
        self.released: dict[Instant, set[str]] = {}
        self._by_id: dict[str, ObservedNotification] = {}
        self._by_offset: dict[int, ObservedNotification] = {}

    def add(self, seen: ObservedNotification) -> None:
        """Of several with one id the first one counts that is not marked as a possible duplicate."""
        self.notifications.append(seen)
        self.versions.add(seen.version)
        self.has_possible_duplicates |= seen.is_possible_duplicate
        if seen.incomplete is not None:
            self.incomplete.add(seen.offset)
            if seen.created_at is not None:
                self.released.setdefault(seen.created_at, set()).add(seen.notification_id)
        known = self._by_id.get(seen.notification_id)
        if known is None or (known.is_possible_duplicate and not seen.is_possible_duplicate):
            self._by_id[seen.notification_id] = seen
        self._by_offset.setdefault(seen.offset, seen)

    @property
    def count(self) -> int:
        """Of different notifications."""
        return len(self._by_id)

    def add_letter(self, offset: int, letter: ObservedDeadLetter) -> None:
        self.letters.setdefault(offset, []).append(letter)

    def find(self, notification_id: str) -> ObservedNotification | None:
        return self._by_id.get(notification_id)

    def find_first(self, offset: int) -> ObservedNotification | None:
        """The first that the record at this offset is said to have caused."""
        return self._by_offset.get(offset)

    def is_set_aside(self, offset: int, reason: str) -> bool:
        """Once, and with this reason."""
        return [each.reason for each in self.letters.get(offset, ())] == [reason]

    def is_told(self, offset: int, reason: str) -> bool:
        """Whether a dead letter of the record says this reason."""
        return any(each.reason == reason for each in self.letters.get(offset, ()))

    def counted(self) -> Sequence[ObservedNotification]:
        """Each notification once, in the order in which they left."""
        return [each for each in self.notifications if self._by_id[each.notification_id] is each]
