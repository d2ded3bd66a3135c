"""What a worker has done since it started, counted for operators."""

from collections import Counter
from collections.abc import Iterable

from domain.dead_letter import DeadLetter
from domain.notification import Notification
from resequencer.unit import Decision


class Figures:
    """Counters that only grow, by name; `longest_wait_ms` is the longest that anything handled had been stashed."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.notifications: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()
        self.longest_wait_ms = 0

    def add_decision(self, decision: Decision) -> None:
        tally = decision.tally
        for name in _TALLIED:
            count = getattr(tally, name)
            if count:
                self.counts[name] += count
        self.counts["released_units"] += len(decision.releases)
        self.longest_wait_ms = max(self.longest_wait_ms, tally.longest_wait_ms)

    def add_outgoing(self, left: Iterable[Notification | DeadLetter]) -> None:
        for each in left:
            if isinstance(each, Notification):
                self.notifications[each.status] += 1
            else:
                self.dead_letters[each.reason.value] += 1


_TALLIED = ("arrived", "handled", "stashed", "duplicates", "late", "incomplete", "retries", "unmatched")
