"""Which records may be delivered next: the head of each lane, when it is due. Pure."""

from collections import deque
from collections.abc import Collection
from heapq import heapify, heappop, heappush
from itertools import count

from notification_service.delivery.direct.core.decision import OpenRecord


class Lanes:
    """The records of a lane are due one after the other; lanes do not wait for each other.

    Instants are in ms of a clock that never goes back.
    """

    def __init__(self) -> None:
        self._lanes: dict[bytes | int, deque[OpenRecord]] = {}
        self._ready: deque[OpenRecord] = deque()
        self._waiting: list[tuple[int, int, OpenRecord]] = []
        self._turns = count()

    @property
    def ready_count(self) -> int:
        """How many records were due when `take_due` was called, and were not taken."""
        return len(self._ready)

    def add(self, record: OpenRecord) -> None:
        """Add a record behind those of its lane."""
        lane = self._lanes.setdefault(record.lane, deque())
        lane.append(record)
        if len(lane) == 1:
            self.push(record)

    def push(self, record: OpenRecord) -> None:
        """Let the head of a lane wait until it is due."""
        heappush(self._waiting, (record.due_at, next(self._turns), record))

    def take_due(self, now: int, most: int) -> list[OpenRecord]:
        """Return up to `most` heads that are due. They are due no more."""
        while self._waiting and self._waiting[0][0] <= now:
            self._ready.append(heappop(self._waiting)[2])
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def find_next_due(self) -> int | None:
        """Return when the next head is due, None if none waits."""
        if self._ready:
            return self._ready[0].due_at
        return self._waiting[0][0] if self._waiting else None

    def recall(self, records: Collection[OpenRecord]) -> list[OpenRecord]:
        """Take those of the records that wait, and return them."""
        wanted = set(records)
        found = [each for each in self._ready if each in wanted]
        found += [each for _, _, each in self._waiting if each in wanted]
        if found:
            self._ready = deque(each for each in self._ready if each not in wanted)
            self._waiting = [each for each in self._waiting if each[2] not in wanted]
            heapify(self._waiting)
        return found

    def is_head(self, record: OpenRecord) -> bool:
        return self._lanes[record.lane][0] is record

    def advance(self, name: bytes | int) -> None:
        """Let a lane go on with the record behind its head."""
        lane = self._lanes[name]
        lane.popleft()
        if lane:
            self.push(lane[0])
        else:
            del self._lanes[name]
