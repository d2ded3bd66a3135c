"""Counters and histograms of what a worker has done since it started, for operators."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from itertools import accumulate
from operator import attrgetter

import msgspec

from resequencer.clock import Instant
from resequencer.dead_letter import DeadLetter
from resequencer.notification import Fact, Notification
from resequencer.order import OrderOutcome
from resequencer.record import Partition, Record
from resequencer.turn.turn import Output, Turn

STEP_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""For what a worker does within a cycle, in seconds. Clocks count milliseconds, so the first bucket holds 0 and 1 ms."""

WAIT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
"""For how long an envelope takes, in seconds: from at once to a day."""


class HistogramReport(msgspec.Struct, frozen=True):
    """How many durations were at most each of `bounds` (seconds, ascending), and their sum in seconds.

    `counts` are cumulative, and one longer than `bounds`: the last one counts all durations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Histogram:
    """Counts durations of one kind since the worker's start. A negative duration (a clock was set back) counts as 0."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._bounds_ms = _in_ms(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum_ms = 0

    def observe(self, duration_ms: int) -> None:
        self.observe_all((duration_ms,))

    def observe_all(self, durations_ms: Iterable[int]) -> None:
        bounds_ms, counts = self._bounds_ms, self._counts
        for each in durations_ms:
            taken = max(0, each)
            counts[bisect_left(bounds_ms, taken)] += 1
            self._sum_ms += taken

    def report(self) -> HistogramReport:
        return HistogramReport(self._bounds, tuple(accumulate(self._counts)), self._sum_ms / 1_000)


@cache
def _in_ms(bounds: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(each * 1_000 for each in bounds)


def sum_of(reports: Iterable[HistogramReport]) -> HistogramReport:
    """The histogram over several workers, of at least one report. Reports with other bounds than the first are left out."""
    first, *others = reports
    same = [first, *(each for each in others if each.bounds == first.bounds)]
    counts = tuple(sum(column) for column in zip(*(each.counts for each in same), strict=True))
    return HistogramReport(first.bounds, counts, sum(each.sum for each in same))


COUNTED = {
    "arrived": "arrived",
    "handled": "handled",
    "stashed": "stashed",
    "duplicates": "duplicates",
    "late": "late",
    "incomplete": "incompletes",
    "retries": "retries",
    "unmatched": "unmatched",
    "suppressed": "suppressed",
}
"""The counters to which turns add, and the fields of a turn that they add."""

_counted_of = attrgetter(*COUNTED.values())


class CycleTimes(msgspec.Struct, frozen=True):
    """How long the steps of one cycle took, in milliseconds, including waits for unavailable servers.

    `poll_ms` includes the wait for input. `records` counts the polled records; it may be 0 if units were woken only.
    """

    records: int
    poll_ms: int
    decide_ms: int
    commit_ms: int
    publish_ms: int


class Histograms:
    """Durations of what a worker does, and of what its envelopes wait.

    `stash_wait` is how long an envelope that was stored in the stash stayed there, until it was handled or became a dead letter.
    `record_to_publication` is the time from a record's timestamp until everything of its cycle was published; of
    handled envelopes only, and only where the source has timestamps (Kafka; files have none). `cycle_…` are the steps of the
    cycles that had work, as in `CycleTimes`. `storage_commit` is one partition's commit and `publication` one portion, each
    including retries while a server is unavailable.
    """

    def __init__(self) -> None:
        self.stash_wait = Histogram(WAIT_BOUNDS)
        self.record_to_publication = Histogram(WAIT_BOUNDS)
        self.cycle_poll = Histogram(STEP_BOUNDS)
        self.cycle_decide = Histogram(STEP_BOUNDS)
        self.cycle_commit = Histogram(STEP_BOUNDS)
        self.cycle_publish = Histogram(STEP_BOUNDS)
        self.storage_commit = Histogram(STEP_BOUNDS)
        self.publication = Histogram(STEP_BOUNDS)

    def report(self) -> dict[str, HistogramReport]:
        return {name: each.report() for name, each in vars(self).items()}


_REMEMBERED_UNITS = 10_000


class KeysOfUnits:
    """Finds units whose records have different keys. It remembers the units that came last, and finds each of them once.

    A record without a key may be in any partition, so its partition stands for its key.
    """

    def __init__(self) -> None:
        self._last: dict[str, int | None] = {}

    def is_found(self, unit: str, record: Record) -> bool:
        """Whether this record has another key than the one before of its unit, for the first time."""
        last = self._last
        key = record.origin.partition.number if record.key is None else hash(record.key)
        before = last.pop(unit, key)
        is_found = before is not None and before != key
        last[unit] = None if is_found else before
        if len(last) > _REMEMBERED_UNITS:
            del last[next(iter(last))]
        return is_found


class Metrics:
    """Counters by name; they only grow. `orders` counts outcomes by kind and result: `release done`.

    `longest_wait_ms` is the longest time that a handled envelope was stashed.

    `last_cycle` has the times of the last cycle with work. `log_ends` is where the logs ended at the last poll, which began at
    `polled_at`, including records that cannot be read yet. `readable_ends` is where they end for a reader.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.notifications: Counter[str] = Counter()
        self.dead_letters: Counter[str] = Counter()
        self.orders: Counter[str] = Counter()
        self.longest_wait_ms = 0
        self.last_cycle: CycleTimes | None = None
        self.log_ends: Mapping[Partition, int] = {}
        self.readable_ends: Mapping[Partition, int] = {}
        self.polled_at: Instant | None = None
        self.histograms = Histograms()

    def note_cycle(self, times: CycleTimes) -> None:
        self.last_cycle = times
        histograms = self.histograms
        histograms.cycle_poll.observe(times.poll_ms)
        histograms.cycle_decide.observe(times.decide_ms)
        histograms.cycle_commit.observe(times.commit_ms)
        histograms.cycle_publish.observe(times.publish_ms)

    def note_published(self, written_at: Iterable[Instant], now: Instant) -> None:
        """All output of the records with these timestamps was published."""
        self.histograms.record_to_publication.observe_all([now - each for each in written_at])

    def add_turns(self, turns: Collection[Turn]) -> None:
        """Add what the turns of a cycle counted."""
        counts = self.counts
        for name, column in zip(COUNTED, zip(*map(_counted_of, turns), strict=True), strict=False):
            counts[name] += sum(column)
        if turns:
            self.longest_wait_ms = max(self.longest_wait_ms, *[each.longest_wait_ms for each in turns])
        self.histograms.stash_wait.observe_all([wait for each in turns for wait in each.waited_ms])
        counts["released_units"] += sum([not release.is_rest for each in turns for release in each.releases])

    def add_output(self, output: Collection[Output]) -> Collection[Output]:
        """Add the output of a commit, and return what of it is no notification."""
        self.notifications.update([each.status for each in output if type(each) is Notification])
        others = [each for each in output if type(each) is not Notification]
        for each in others:
            if isinstance(each, Fact):
                self.counts["facts"] += 1
            elif isinstance(each, OrderOutcome):
                kind = "unreadable" if each.order is None else each.order.kind.value
                self.orders[f"{kind} {each.result.value}"] += 1
            elif isinstance(each, DeadLetter):
                self.dead_letters[each.reason.value] += 1
        return others
