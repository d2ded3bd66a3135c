"""Unavailable servers that handlers call: which units wait for each, and how many may try again. Pure bookkeeping.

At first one unit tries, after pauses that double. While most tries succeed, twice as many units try next. So a million waiting
units do not overload a server that has just recovered, and their failing calls do not keep the worker from reading.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from resequencer.batch import UnitKey
from resequencer.clock import Instant
from resequencer.record import Partition

_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 1_000, 30_000


@dataclass(slots=True)
class _Unavailable:
    """One unavailable server.

    `waiting` counts the units that wait for it. `due` are the units whose own back-off has ended, the longest due first.
    `tried` are the units of the present wave without a result yet; the wave has `taken` units, of which `failed` failed.
    """

    waiting: int = 0
    due: dict[UnitKey, None] = field(default_factory=dict)
    tried: set[UnitKey] = field(default_factory=set)
    taken: int = 0
    failed: int = 0
    at_once: int = 1
    pause_ms: int = 0
    next_at: Instant = 0

    def is_open(self, now: Instant) -> bool:
        """Whether the next wave may begin. A clock that was set back does not prolong the pause."""
        return bool(self.due) and not self.tried and not 0 < self.next_at - now <= self.pause_ms

    def end_try(self, now: Instant) -> None:
        if self.failed == self.taken:
            self.at_once, self.pause_ms = 1, min(max(2 * self.pause_ms, _FIRST_PAUSE_MS), _LONGEST_PAUSE_MS)
            self.next_at = now + self.pause_ms
        else:
            self.at_once = 2 * self.at_once if 2 * self.failed <= self.taken else max(1, self.at_once // 2)
            self.pause_ms = self.next_at = 0


class Dependencies:
    """The unavailable servers. A server is known from the first unit that waits for it to the last."""

    def __init__(self) -> None:
        self._unavailable: dict[str, _Unavailable] = {}
        self._due_for: dict[UnitKey, str] = {}
        self._tried_for: dict[UnitKey, str] = {}

    @property
    def waiting(self) -> Mapping[str, int]:
        """How many units wait for each server."""
        return {name: unavailable.waiting for name, unavailable in self._unavailable.items()}

    @property
    def next_at(self) -> Instant | None:
        """The earliest instant at which a unit may try."""
        return min((each.next_at for each in self._unavailable.values() if each.due and not each.tried), default=None)

    def remember(self, before: str | None, after: str | None) -> None:
        """Count a unit that waited for the server `before` and now waits for the server `after`; None is no server."""
        if before == after:
            return
        if after is not None:
            self._unavailable.setdefault(after, _Unavailable()).waiting += 1
        if before is not None:
            unavailable = self._unavailable[before]
            unavailable.waiting -= 1
            if not unavailable.waiting:
                del self._unavailable[before]

    def queue(self, key: UnitKey, name: str) -> None:
        """Queue a unit whose own back-off has ended."""
        self._unavailable[name].due[key] = None
        self._due_for[key] = name

    def take(self, now: Instant, limit: int) -> Iterator[UnitKey]:
        """Yield the units that may try now, at most `limit` for each server."""
        for name, unavailable in self._unavailable.items():
            if not unavailable.is_open(now):
                continue
            unavailable.at_once = min(unavailable.at_once, limit)
            wave = [key for key, _ in zip(unavailable.due, range(unavailable.at_once), strict=False)]
            unavailable.tried, unavailable.taken, unavailable.failed = set(wave), len(wave), 0
            for key in wave:
                del unavailable.due[key], self._due_for[key]
                self._tried_for[key] = name
                yield key

    def note(self, key: UnitKey, name: str | None, now: Instant) -> None:
        """Note that a unit took a turn after which it waits for the server `name`, None for no server."""
        if self._due_for.get(key, name) != name:
            self._forget_due(key)
        tried = self._tried_for.pop(key, None)
        unavailable = None if tried is None else self._unavailable.get(tried)
        if unavailable is not None:
            unavailable.tried.discard(key)
            unavailable.failed += name == tried
            if not unavailable.tried:
                unavailable.end_try(now)

    def put_back(self, key: UnitKey, now: Instant) -> None:
        """Note that a unit of the wave did not call the server. It does not count as a try."""
        unavailable = self._unavailable.get(self._tried_for.pop(key, ""))
        if unavailable is not None:
            unavailable.tried.discard(key)
            unavailable.taken -= 1
            if not unavailable.tried and unavailable.taken:
                unavailable.end_try(now)

    def drop(self, partition: Partition) -> None:
        """Forget a partition's due and trying units. Its waiting units are removed one by one with `remember`."""
        for key in [each for each in self._due_for if each.partition == partition]:
            self._forget_due(key)
        for key in [each for each in self._tried_for if each.partition == partition]:
            unavailable = self._unavailable.get(self._tried_for.pop(key))
            if unavailable is not None:
                unavailable.tried.discard(key)

    def _forget_due(self, key: UnitKey) -> None:
        unavailable = self._unavailable.get(self._due_for.pop(key))
        if unavailable is not None:
            unavailable.due.pop(key, None)
