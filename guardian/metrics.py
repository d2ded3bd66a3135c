"""Counters of what a worker has done since it started, for operators."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import astuple

from domain.dead_letter import DeadLetter
from domain.notification import Notification
from domain.record import Partition
from resequencer.unit import Decision, Tally


class CycleTimes(msgspec.Struct, frozen=True):
    """How long the steps of one cycle took, in milliseconds, including waits for unavailable servers.

    `poll_ms` includes the wait for input. `records` counts the polled records; it may be 0 if units were woken only.
    """

    records: int
    poll_ms: int
    decide_ms: int
    commit_ms: int
    publish_ms: int


class Metrics:
    """Counters by name; they only grow. `longest_wait_ms` is the longest time that a handled envelope was stashed.

    `last_cycle` has the times of the last cycle with work. `log_ends` is where the logs ended at the last poll, including
    records that cannot be read yet.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.notifications: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()
        self.longest_wait_ms = 0
        self.last_cycle: CycleTimes | None = None
        self.log_ends: Mapping[Partition, int] = {}

    def add_decisions(self, decisions: Collection[Decision]) -> None:
        for name, of_each in zip(
            Tally.__struct_fields__, zip(*[astuple(each.tally) for each in decisions], strict=True), strict=False
        ):
            if name == "longest_wait_ms":
                self.longest_wait_ms = max(self.longest_wait_ms, *of_each)
            else:
                self.counts[name] += sum(of_each)
        self.counts["released_units"] += sum([not release.is_rest for each in decisions for release in each.releases])

    def add_output(self, left: Iterable[Notification | DeadLetter]) -> None:
        for each in left:
            if isinstance(each, Notification):
                self.notifications[each.status] += 1
            else:
                self.dead_letters[each.reason.value] += 1
